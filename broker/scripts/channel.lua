-- A listener's heartbeat: keep its reply channel, or make it anew.
-- KEYS  1 the reply channel
-- ARGV  1 ms until it expires
-- Gives 1 if it had to be made: replies, and perhaps jobs, are lost.
local made = 0
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then -- absent, or another hand put something in its place
  redis.call('DEL', KEYS[1])
  redis.call('XADD', KEYS[1], '*', 'made', '')
  made = 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return made
