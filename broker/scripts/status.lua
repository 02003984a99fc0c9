-- What is known of a model: its workers, and what waits for them.
-- KEYS  1 the model's workers   2 waiting counters
-- ARGV  1 what a worker's key begins with (the key is in the same slot: it has the model's tag)
-- Gives what each living worker says of itself, then the counters as field, value, …
local living = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local said = redis.call('GET', ARGV[1] .. id)
  if said then living[#living + 1] = said end
end
return { living, redis.call('HGETALL', KEYS[2]) }
