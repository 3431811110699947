-- Acknowledge and remove entries of one priority: XACK alone would leave them in the stream.
--
--   KEYS[1]  <stream>  stream
--   ARGV[1]  group     ARGV[2]  entry ids, with blanks between
--
-- In pieces, because unpack fails past about 8,000 arguments. Answers how many were removed.
local ids = {}
for id in string.gmatch(ARGV[2], '%S+') do
  ids[#ids + 1] = id
end
local removed = 0
for i = 1, #ids, 1000 do
  local last = math.min(i + 999, #ids)
  redis.call('XACK', KEYS[1], ARGV[1], unpack(ids, i, last))
  removed = removed + redis.call('XDEL', KEYS[1], unpack(ids, i, last))
end
return removed
