-- Settle what a request really cost: end its lease, and give back (or take) the tokens that the estimate was off by.
-- KEYS  1 the API key's buckets   2 its leases   3 its tokens of the day   4 of the month
-- ARGV  1 the lease   2 its items   3 tokens to give back; below 0: to take
if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], 'held', -ARGV[2])
end
if ARGV[3] ~= '0' then
  if redis.call('HEXISTS', KEYS[1], 't') == 1 then redis.call('HINCRBYFLOAT', KEYS[1], 't', ARGV[3]) end
  for quota = 3, 4 do
    if redis.call('EXISTS', KEYS[quota]) == 1 then redis.call('DECRBY', KEYS[quota], ARGV[3]) end
  end
end
return redis.status_reply('OK')
