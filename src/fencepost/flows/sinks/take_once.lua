-- Append values whose ids were not seen within the time to live.
--
-- KEYS[1]  the list
-- KEYS[2]  sorted set: id -> when it was seen, in milliseconds
-- ARGV     time to live in milliseconds, then id and value by turns
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[1]))
local taken = 0
for i = 2, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i]) == 1 then
    redis.call('RPUSH', KEYS[1], ARGV[i + 1])
    taken = taken + 1
  end
end
return taken
