-- Write a batch of entries into the stream of one priority, as far as there is room.
--
--   KEYS[1]  <stream>                 stream  the priority's entries: job_id, enqueue_ts, payload_ref, priority
--   KEYS[2]  {<stream>}:incarnation   string  a random name for this life of Redis; a wipe takes it along
--
--   ARGV[1]  the stream's bound    ARGV[2]  a name, should this be a new life
--   ARGV[3]  priority              ARGV[4]  enqueue_ts in milliseconds    ARGV[5]  job ids, with blanks between
--
-- Half of the bound is room for entries that are undelivered or pending, so that trimming never meets one of them. It is
-- counted here, where no other dispatcher can write between the count and the entries.
--
-- Answers the incarnation and the ids of the entries, of the first jobs if not all had room. Reading the name in the same
-- script ties each entry to the life it lives in. Lists travel as one text: a client spends more on an argument than on
-- what is in it.
local incarnation = redis.call('GET', KEYS[2])
if not incarnation then
  incarnation = ARGV[2]
  redis.call('SET', KEYS[2], incarnation)
end
local written = {}
local room = math.floor(tonumber(ARGV[1]) / 2) - redis.call('XLEN', KEYS[1])
for job_id in string.gmatch(ARGV[5], '%d+') do
  if #written >= room then
    break
  end
  written[#written + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'job_id', job_id,
    'enqueue_ts', ARGV[4], 'payload_ref', 'task:payload:' .. job_id, 'priority', ARGV[3])
end
return {incarnation, table.concat(written, ' ')}
