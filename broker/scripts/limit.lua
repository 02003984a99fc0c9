-- Take what a request costs out of an API key's limits, all of it or nothing.
-- KEYS  1 the key's buckets   2 its leases   3 its tokens of the day   4 of the month
-- ARGV  1 now in ms, or 0 for the server's time
--       limits, 0 for none:  2 requests a minute  3 tokens a minute  4 items at once  5 tokens a day  6 a month
--       the request:  7 requests  8 tokens, as estimated  9 items  10 its lease  11 ms until the lease ends by itself
-- Gives what refused it ('' if nothing did), ms to wait, then requests, tokens, items at once, tokens of the day and month
-- that are left.
local n = {}
for place, value in ipairs(ARGV) do n[place] = tonumber(value) or 0 end
local now = n[1]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local held_fields = redis.call('HMGET', KEYS[1], 'r', 't', 'at', 'held')
local since = math.max(0, now - (tonumber(held_fields[3]) or now))

local function level(place, limit)
  if limit == 0 then return 0 end
  local last = tonumber(held_fields[place])
  return last and math.min(limit, last + since * limit / 60000) or limit
end

local function until_level(wanted, has, limit)
  return limit > 0 and math.max(0, math.ceil((wanted - has) * 60000 / limit)) or 0
end

local requests, tokens = level(1, n[2]), level(2, n[3])
local held = tonumber(held_fields[4]) or 0
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  redis.call('ZREM', KEYS[2], lease)
  held = held - tonumber(string.match(lease, ':(%d+)$'))
end
held = math.max(0, held)
local day, month = tonumber(redis.call('GET', KEYS[3]) or 0), tonumber(redis.call('GET', KEYS[4]) or 0)

local refused, wait = '', 0
-- A request that is larger than a minute's tokens runs when the bucket is full, and is paid for after it.
local wanted = math.min(n[8], n[3])
if n[5] > 0 and day + n[8] > n[5] then refused = 'day'
elseif n[6] > 0 and month + n[8] > n[6] then refused = 'month'
elseif n[2] > 0 and requests < n[7] then
  refused, wait = 'requests', until_level(n[7], requests, n[2])
elseif n[3] > 0 and tokens < wanted then
  refused, wait = 'tokens', until_level(wanted, tokens, n[3])
elseif n[4] > 0 and held + n[9] > n[4] then
  refused, wait = 'items', 1000
end

if refused == '' then
  if n[2] > 0 then requests = requests - n[7] end
  if n[3] > 0 then tokens = tokens - n[8] end
  if n[4] > 0 then
    held = held + n[9]
    redis.call('ZADD', KEYS[2], now + n[11], ARGV[10])
    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
    redis.call('PEXPIRE', KEYS[2], math.ceil(math.max(1, tonumber(last[2]) - now)) + 60000)
  end
  if n[5] > 0 then
    day = redis.call('INCRBY', KEYS[3], n[8])
    redis.call('EXPIRE', KEYS[3], 2 * 86400)
  end
  if n[6] > 0 then
    month = redis.call('INCRBY', KEYS[4], n[8])
    redis.call('EXPIRE', KEYS[4], 33 * 86400)
  end
end
local full = math.max(until_level(n[2], requests, n[2]), until_level(n[3], tokens, n[3]), redis.call('PTTL', KEYS[2]))
redis.call('HSET', KEYS[1], 'r', string.format('%.4f', requests), 't', string.format('%.4f', tokens),
  'at', string.format('%.0f', now), 'held', held)
redis.call('PEXPIRE', KEYS[1], full + 60000)
local function whole(value) return string.format('%.0f', math.max(0, math.floor(value))) end
return { refused, string.format('%.0f', wait), whole(requests), whole(tokens), whole(n[4] - held), whole(n[5] - day),
  whole(n[6] - month) }
