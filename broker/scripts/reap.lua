-- Take over what a dead consumer held, and remove it once it holds nothing.
-- KEYS  1 stream of jobs   2 heartbeat of that consumer
-- ARGV  1 group   2 the dead consumer   3 who takes over   4 most entries
-- Gives the server's time in ms and the entries; none if that heartbeat is there. Its slowness is not its death.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('EXISTS', KEYS[2]) == 1 then return { now, {} } end
local ids = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[4], ARGV[2])) do ids[#ids + 1] = row[1] end
if #ids == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
  return { now, {} }
end
return { now, redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, unpack(ids)) }
