-- Take new jobs from one lane until their cost is spent.
-- KEYS  1 stream of jobs
-- ARGV  1 group   2 consumer   3 tokens to spend   4 most entries
-- Gives the server's time in ms and the entries.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local budget, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local entries, spent = {}, 0
while spent < budget and #entries < most do
  local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
  if not reply then break end
  local entry = reply[1][2][1]
  entries[#entries + 1] = entry
  spent = spent + (tonumber(entry[2][2]) or 1) -- another hand may have put it here
end
return { now, entries }
