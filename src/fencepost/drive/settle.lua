-- Acknowledge and remove entries of one lane: XACK alone would leave them in the stream.
--
--   KEYS[1]  <stream>  stream
--   ARGV[1]  group     ARGV[2..]  entry ids
--
-- In pieces, because unpack fails past about 8,000 arguments. Answers how many were removed.
local removed = 0
for i = 2, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, i, last))
  removed = removed + redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
end
return removed
