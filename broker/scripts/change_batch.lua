-- Change a batch, where it is as expected and whoever changes it may.
-- KEYS  1 the batch   2 its claim   3 its parts
-- ARGV  1 whose claim it must be; '' for anyone   2 ms by which that claim is prolonged
--       3 the states, in JSON, that it must be in one of; '' for any   4 the number of fields
--       then each field and its value, then parts to add
-- Gives the state it is in now, in JSON; '' where it is gone, or the claim another's.
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return '' end
if ARGV[1] ~= '' then
  if redis.call('GET', KEYS[2]) ~= ARGV[1] then return '' end
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
if ARGV[3] ~= '' and not string.find(ARGV[3], status, 1, true) then return status end
local fields = tonumber(ARGV[4])
for at = 5, 4 + 2 * fields, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
for at = 5 + 2 * fields, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[at]) end
if #ARGV > 4 + 2 * fields then redis.call('PEXPIRE', KEYS[3], redis.call('PTTL', KEYS[1])) end
return redis.call('HGET', KEYS[1], 'status')
