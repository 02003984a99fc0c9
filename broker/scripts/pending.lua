-- Find what a consumer was given and does not hold, as after a reply that was lost on its way, and give it again.
-- KEYS  1 stream of jobs
-- ARGV  1 group   2 consumer   then the ids it holds
-- Gives the server's time in ms and the entries.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = {}
for at = 3, #ARGV do held[ARGV[at]] = true end
local lost = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])) do
  if not held[row[1]] then lost[#lost + 1] = row[1] end
  if #lost >= 500 then break end
end
if #lost == 0 then return { now, {} } end
return { now, redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(lost)) }
