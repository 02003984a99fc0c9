-- Forget jobs that are answered, or that nobody wants: acknowledge, delete, count down.
-- KEYS  1 stream of jobs   2 waiting counters   3 attempts
-- ARGV  1 group   2 lane   then for each entry: id, items, tokens, bytes
-- Gives how many entries were still there. Only who deleted an entry counts it down, so none is counted twice.
local sums = { 0, 0, 0 }
local deleted = 0
for at = 3, #ARGV, 4 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[at])
  redis.call('HDEL', KEYS[3], ARGV[at])
  if redis.call('XDEL', KEYS[1], ARGV[at]) == 1 then
    deleted = deleted + 1
    for unit = 1, 3 do sums[unit] = sums[unit] + tonumber(ARGV[at + unit]) end
  end
end
-- In an empty lane nothing waits, whoever else took something off it.
local empty = redis.call('XLEN', KEYS[1]) == 0
for unit, name in ipairs({ ':items', ':tokens', ':bytes' }) do
  if empty then
    redis.call('HDEL', KEYS[2], ARGV[2] .. name)
  elseif deleted > 0 then
    redis.call('HINCRBY', KEYS[2], ARGV[2] .. name, -sums[unit])
  end
end
return deleted
