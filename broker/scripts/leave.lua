-- Remove a consumer that holds nothing.
-- KEYS  1 stream of jobs
-- ARGV  1 group   2 consumer
-- Gives how many entries it still holds; it is removed when that is 0.
local held = #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if held == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
return held
