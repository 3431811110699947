-- Withdraw an announcement, if it is still the caller's own: a late caller must not remove another one's.
--
--   KEYS[1]  fencepost:mutation:{<scope>/<key>}  string, see response_begin.lua
--   ARGV[1]  token
local seen = redis.call('GET', KEYS[1])
if seen and string.match(seen, '^pending (%S+) %d+$') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
