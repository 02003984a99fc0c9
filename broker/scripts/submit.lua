-- Put jobs on a model's streams, or refuse them.
-- KEYS  1 stream of online jobs   2 stream of bulk jobs   3 waiting counters
-- ARGV  1 most items   2 most bytes that may wait in one lane   then groups, each of one lane and all or nothing:
--       number of jobs, most tokens that may wait, then for each job: lane (1 online, 2 bulk), cost, items, job
-- Gives for each group a list of entry ids, or 0 where it was refused.
local lanes = { 'online', 'bulk' }
local most_items, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local names = { ':items', ':tokens', ':bytes' }
local waiting, added = { {}, {} }, { { 0, 0, 0 }, { 0, 0, 0 } }
for lane, prefix in ipairs(lanes) do
  for unit, name in ipairs(names) do
    waiting[lane][unit] = tonumber(redis.call('HGET', KEYS[3], prefix .. name) or 0)
  end
end

local function measure(first)
  return { tonumber(ARGV[first + 2]), tonumber(ARGV[first + 1]), #ARGV[first + 3] }
end

local function fits(lane, new, most_tokens)
  for unit, most in ipairs({ most_items, most_tokens, most_bytes }) do
    -- An empty lane takes anything, or a request over the limit could never be served.
    if waiting[lane][unit] > 0 and waiting[lane][unit] + new[unit] > most then return false end
  end
  return true
end

local function add(first)
  local lane, counts = tonumber(ARGV[first]), measure(first)
  for unit = 1, 3 do
    waiting[lane][unit] = waiting[lane][unit] + counts[unit]
    added[lane][unit] = added[lane][unit] + counts[unit]
  end
  return redis.call('XADD', KEYS[lane], '*', 'c', ARGV[first + 1], 'n', ARGV[first + 2], 'j', ARGV[first + 3])
end

local answers = {}
local at = 3
while at <= #ARGV do
  local jobs, most_tokens, new = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), { 0, 0, 0 }
  for job = 0, jobs - 1 do
    for unit, count in ipairs(measure(at + 2 + 4 * job)) do new[unit] = new[unit] + count end
  end
  local answer = 0
  if fits(tonumber(ARGV[at + 2]), new, most_tokens) then
    answer = {}
    for job = 0, jobs - 1 do answer[job + 1] = add(at + 2 + 4 * job) end
  end
  answers[#answers + 1] = answer
  at = at + 2 + 4 * jobs
end

for lane, counts in ipairs(added) do
  if counts[1] > 0 then
    for unit, name in ipairs(names) do
      redis.call('HINCRBY', KEYS[3], lanes[lane] .. name, counts[unit])
    end
  end
end
return answers
