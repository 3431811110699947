-- Take the values of one checkpoint of one task, once, and of these only those whose ids were not seen within the time to live.
--
-- KEYS[1]  the list
-- KEYS[2]  hash: resource of a task -> number of the last checkpoint that was taken
-- KEYS[3]  sorted set: id -> when it was seen, in milliseconds
-- ARGV     resource, number, the newest number that the caller has seen here, time to live in milliseconds, then id
--          and value by turns
--
-- The number keeps a repeat out however late it comes; ids, records that the source has twice.
local resource, number = ARGV[1], tonumber(ARGV[2])
local held = tonumber(redis.call('HGET', KEYS[2], resource) or '0')
-- It was there, and is not any more: to go on would hide the loss.
if held < tonumber(ARGV[3]) then
  return redis.error_reply('BEHIND ' .. KEYS[2] .. ' of ' .. resource .. ' was at ' .. ARGV[3] .. ' and is at ' .. held)
end
if number <= held then
  return 0
end
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'list' then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is a ' .. found .. ', not a list')
end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(ARGV[4]))
for i = 5, #ARGV, 2 do
  if redis.call('ZADD', KEYS[3], 'NX', now, ARGV[i]) == 1 then
    redis.call('RPUSH', KEYS[1], ARGV[i + 1])
  end
end
redis.call('HSET', KEYS[2], resource, number)
return 1
