-- Whose heartbeat is gone, of a lane's consumers.
-- KEYS  1 stream of jobs
-- ARGV  1 group   2 what a worker's key begins with (the key is in the same slot: it has the model's tag)
-- Gives their names; none where there is no stream yet, or no group.
local names = {}
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return names end
for _, consumer in ipairs(consumers) do
  if redis.call('EXISTS', ARGV[2] .. consumer[2]) == 0 then names[#names + 1] = consumer[2] end
end
return names
