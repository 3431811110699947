-- Write a batch of entries into the stream of one lane.
--
--   KEYS[1]  <stream>                 stream  the lane's entries: job_id, enqueue_ts, payload_ref, priority
--   KEYS[2]  {<stream>}:incarnation   string  a random name for this life of Redis; a wipe takes it along
--
--   ARGV[1]  the stream's bound    ARGV[2]  a name, should this be a new life
--   ARGV[3]  priority              ARGV[4]  enqueue_ts in milliseconds    ARGV[5..]  job ids
--
-- Answers the incarnation and the entry ids. Reading the name in the same script ties each entry to the life it lives in.
local incarnation = redis.call('GET', KEYS[2])
if not incarnation then
  incarnation = ARGV[2]
  redis.call('SET', KEYS[2], incarnation)
end
local answer = {incarnation}
for i = 5, #ARGV do
  answer[#answer + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'job_id', ARGV[i],
    'enqueue_ts', ARGV[4], 'payload_ref', 'task:payload:' .. ARGV[i], 'priority', ARGV[3])
end
return answer
