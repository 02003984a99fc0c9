-- Put jobs on a model's streams, or refuse them.
-- KEYS  1 stream of online jobs   2 stream of bulk jobs   3 waiting counters
-- ARGV  1 most items   2 most tokens   3 most bytes waiting   then groups, each all or nothing:
--       number of jobs, then for each job: lane (1 online, 2 bulk), cost, items, job
-- Gives for each group a list of entry ids, or 0 where it was refused.
local lanes = { 'online', 'bulk' }
local limits = { tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) }
local names = { ':items', ':tokens', ':bytes' }
local waiting = { 0, 0, 0 }
for unit, name in ipairs(names) do
  for _, lane in ipairs(lanes) do
    waiting[unit] = waiting[unit] + tonumber(redis.call('HGET', KEYS[3], lane .. name) or 0)
  end
end

local added = { { 0, 0, 0 }, { 0, 0, 0 } }
local answers = {}
local at = 4
while at <= #ARGV do
  local jobs = tonumber(ARGV[at])
  local new = { 0, 0, 0 }
  for job = 0, jobs - 1 do
    local first = at + 1 + 4 * job
    new[1] = new[1] + tonumber(ARGV[first + 2])
    new[2] = new[2] + tonumber(ARGV[first + 1])
    new[3] = new[3] + #ARGV[first + 3]
  end
  local fits = true
  for unit = 1, 3 do
    -- An empty queue takes anything, or a request over the limit could never be served.
    if waiting[unit] > 0 and waiting[unit] + new[unit] > limits[unit] then fits = false end
  end
  if fits then
    local ids = {}
    for job = 0, jobs - 1 do
      local first = at + 1 + 4 * job
      local lane, cost, items, data = tonumber(ARGV[first]), ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
      ids[#ids + 1] = redis.call('XADD', KEYS[lane], '*', 'c', cost, 'n', items, 'j', data)
      added[lane][1] = added[lane][1] + tonumber(items)
      added[lane][2] = added[lane][2] + tonumber(cost)
      added[lane][3] = added[lane][3] + #data
    end
    for unit = 1, 3 do waiting[unit] = waiting[unit] + new[unit] end
    answers[#answers + 1] = ids
  else
    answers[#answers + 1] = 0
  end
  at = at + 1 + 4 * jobs
end

for lane, counts in ipairs(added) do
  if counts[1] > 0 then
    for unit, name in ipairs(names) do
      redis.call('HINCRBY', KEYS[3], lanes[lane] .. name, counts[unit])
    end
  end
end
return answers
