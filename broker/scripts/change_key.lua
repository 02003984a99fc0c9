-- Change one API key, and put down who did it.
-- KEYS  1 the keys   2 their version   3 the log
-- ARGV  1 what: add, rotate or revoke   2 the key's name   3 its hash (64 characters)   4 what it may do
--       5 the next version   6 who   7 most keys   8 most lines of the log
-- Gives '' or what is in the way: exists, absent, full.
local what, name = ARGV[1], ARGV[2]
local known = redis.call('HGET', KEYS[1], name)
if what == 'add' then
  if known then return 'exists' end
  if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) then return 'full' end
  redis.call('HSET', KEYS[1], name, ARGV[3] .. ARGV[4])
elseif not known then
  return 'absent'
elseif what == 'rotate' then
  redis.call('HSET', KEYS[1], name, ARGV[3] .. string.sub(known, 65))
else
  redis.call('HDEL', KEYS[1], name)
end
redis.call('SET', KEYS[2], ARGV[5])
redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[8], '*', 'what', what, 'name', name, 'who', ARGV[6], 'about', ARGV[4])
return ''
