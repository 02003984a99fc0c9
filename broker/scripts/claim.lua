-- Note that a producer is about to queue a job, unless it has already.
-- KEYS  1 the producer's open jobs
-- ARGV  1 the job's id   2 most open jobs   3 ms after which all is forgotten
-- Gives 1 to go on, 0 if the job is queued already, -1 if too many are open.
local state = redis.call('HGET', KEYS[1], ARGV[1])
if state == 'queued' then return 0 end
if not state and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[2]) then return -1 end
redis.call('HSET', KEYS[1], ARGV[1], 'queueing')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
