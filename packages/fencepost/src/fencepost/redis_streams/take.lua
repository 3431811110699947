-- Read new entries of several streams for one consumer: so many in all, and no more.
--
--   KEYS[i]    <stream>   stream   the priorities' entries, in the order in which leftovers are offered
--
--   ARGV[1]    group      ARGV[2]  consumer      ARGV[3]  how many in all
--   ARGV[3+i]  how many of KEYS[i] at first
--
-- By the parts first; what one stream leaves is offered to the others. One script, because several commands would either
-- read too much (COUNT is per stream) or cost a round trip for each stream that turns out to be empty.
--
-- A stream without the group is new, or Redis was wiped. The group is made from the beginning: what was written before
-- it belongs to it too.
--
-- Answers {stream, 'id job_id id job_id ...', {{id, {field, value, ...}}, ...}} for each stream that had something: as one
-- text what the dispatcher wrote, because a client spends more on a reply than on what is in it, and whatever else
-- was written there by another program as it was found.
local group, consumer, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answer = {}
local full = {}

local function names_a_job(flat)
  return flat and #flat == 8 and flat[1] == 'job_id' and flat[3] == 'enqueue_ts' and flat[5] == 'payload_ref'
    and flat[7] == 'priority' and #flat[2] <= 18 and string.find(flat[2], '^%d+$')
end

local function read(stream, count)
  local got = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  if got and got.err and string.find(got.err, 'NOGROUP', 1, true) then
    redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    got = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  end
  if got and got.err then
    error(got.err, 0)
  end
  if not got or #got == 0 then
    return 0
  end
  local entries, known, others = got[1][2], {}, {}
  for _, entry in ipairs(entries) do
    if names_a_job(entry[2]) then
      known[#known + 1] = entry[1]
      known[#known + 1] = entry[2][2]
    else
      others[#others + 1] = entry
    end
  end
  answer[#answer + 1] = {stream, table.concat(known, ' '), others}
  left = left - #entries
  return #entries
end

for i, stream in ipairs(KEYS) do
  local part = math.min(tonumber(ARGV[3 + i]), left)
  if part == 0 or read(stream, part) == part then
    full[#full + 1] = stream
  end
end
for _, stream in ipairs(full) do
  if left > 0 then
    read(stream, left)
  end
end
return answer
