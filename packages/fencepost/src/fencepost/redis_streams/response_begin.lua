-- Announce a request as under way, unless it is already, or has its answer.
--
--   KEYS[1]  fencepost:mutation:{<scope>/<key>}  string
--            "pending <token> <until_ms>"   under way at the node that has the token
--            "done <document>"              its answer, as JSON with the request it belongs to
--   ARGV[1]  token    ARGV[2]  ttl_ms    ARGV[3]  now_ms of the caller
--
-- Answers false when it was announced, and otherwise what stands there. A pending entry that has outlived its own end
-- is taken over, also where Redis has not removed it.
local seen = redis.call('GET', KEYS[1])
if seen then
  local ends = string.match(seen, '^pending %S+ (%d+)$')
  if not ends or tonumber(ends) > tonumber(ARGV[3]) then
    return seen
  end
end
local value = string.format('pending %s %d', ARGV[1], ARGV[3] + ARGV[2])
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
return false
