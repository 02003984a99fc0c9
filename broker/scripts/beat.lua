-- A worker's heartbeat.
-- KEYS  1 the worker   2 the model's workers   3 the model's fingerprint
-- ARGV  1 what it says of itself   2 ms until it is dead   3 its id   4 ms after which a silent worker is forgotten
--       5 its fingerprint, or nothing while it has none or mixes knowingly
-- Gives the server's time in ms, and the fingerprint of the living if it is another: then this worker is not one of them.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[5] ~= '' then
  local theirs = redis.call('GET', KEYS[3])
  if theirs and theirs ~= ARGV[5] then return { now, theirs } end
  redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[2])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], now, ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[4]))
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return { now, '' }
