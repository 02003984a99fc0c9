-- What is known of a model: its workers, what waits for them, and what they gave up.
-- KEYS  1 the model's workers   2 waiting counters   3 dead letters
-- ARGV  1 what a worker's key begins with (the key is in the same slot: it has the model's tag)
-- Gives what each living worker says of itself, the counters as field, value, …, and how many dead letters there are.
local living = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local said = redis.call('GET', ARGV[1] .. id)
  if said then living[#living + 1] = said end
end
local dead = redis.pcall('XLEN', KEYS[3]) -- an error where another hand put something in its place
return { living, redis.call('HGETALL', KEYS[2]), type(dead) == 'number' and dead or 0 }
