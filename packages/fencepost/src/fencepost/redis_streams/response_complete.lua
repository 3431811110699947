-- Keep the answer of a request that has committed. It is kept whichever request is announced meanwhile; but an answer
-- that stands there already is the first one, and stays.
--
--   KEYS[1]  fencepost:mutation:{<scope>/<key>}  string, see response_begin.lua
--   ARGV[1]  document    ARGV[2]  ttl_ms
local seen = redis.call('GET', KEYS[1])
if seen and string.sub(seen, 1, 5) == 'done ' then
  return 0
end
redis.call('SET', KEYS[1], 'done ' .. ARGV[1], 'PX', ARGV[2])
return 1
