-- Remove from one priority the entries that are no longer needed, and return what is left.
--
--   KEYS[1]  <stream>                 stream
--   KEYS[2]  {<stream>}:incarnation   string  the name of this life of Redis
--
--   ARGV[1]  group    ARGV[2]  how long, in milliseconds, a consumer without entries is remembered
--
-- Entries before both the last delivered and the first pending one are not needed: they were acknowledged and not removed,
-- by another program, because settle.lua does both at once. They would count against the stream's bound for ever. Consumers that
-- are long gone are not needed either: every worker has a name of its own.
--
-- Answers incarnation, length, first id, last generated id, entries added, last delivered id, pending; '' for what is not there.
local function pairs_of(flat)
  local named = {}
  for i = 1, #flat, 2 do
    named[flat[i]] = flat[i + 1]
  end
  return named
end

local incarnation = redis.call('GET', KEYS[2]) or ''
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {incarnation, 0, '', '', 0, '', 0}
end

local group
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local found = pairs_of(flat)
  if found['name'] == ARGV[1] then
    group = found
  end
end
if group then
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1])
  redis.call('XTRIM', KEYS[1], 'MINID', '=', pending[1] > 0 and pending[2] or group['last-delivered-id'])
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local consumer = pairs_of(flat)
    if consumer['pending'] == 0 and consumer['idle'] > tonumber(ARGV[2]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
    end
  end
end

local stream = pairs_of(redis.call('XINFO', 'STREAM', KEYS[1]))
local first = stream['first-entry']
return {
  incarnation, stream['length'], first and first[1] or '', stream['last-generated-id'], stream['entries-added'] or 0,
  group and group['last-delivered-id'] or '', group and group['pending'] or 0,
}
