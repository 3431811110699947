-- Take the values of one checkpoint of one task, once: write, frontier and acknowledgement in one script.
--
-- KEYS[1]  the structure that the values go to
-- KEYS[2]  hash: resource of a task -> number of the last checkpoint that was taken
-- KEYS[3]  the source's stream, if entries are to be acknowledged here
-- ARGV     kind, resource, number, group (or ''), count of ids, ids..., values...
--
-- A script is not rolled back, so what could fail is looked at before the first write.
local kind, resource, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = tonumber(redis.call('HGET', KEYS[2], resource) or '0')
if number <= held then
  return 0
end
local wanted = {list = 'list', hash = 'hash', set = 'set', stream = 'stream'}
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= wanted[kind] then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is a ' .. found .. ', not a ' .. kind)
end
local ids = tonumber(ARGV[5])
local first = 6 + ids
local step = 1000
for i = first, #ARGV, step do
  local last = math.min(i + step - 1, #ARGV)
  if kind == 'list' then
    redis.call('RPUSH', KEYS[1], unpack(ARGV, i, last))
  elseif kind == 'set' then
    redis.call('SADD', KEYS[1], unpack(ARGV, i, last))
  elseif kind == 'hash' then
    redis.call('HSET', KEYS[1], unpack(ARGV, i, last))
  else
    for j = i, last do
      redis.call('XADD', KEYS[1], '*', 'data', ARGV[j])
    end
  end
end
for i = 6, 5 + ids, step do
  redis.call('XACK', KEYS[3], ARGV[4], unpack(ARGV, i, math.min(i + step - 1, 5 + ids)))
end
redis.call('HSET', KEYS[2], resource, number)
return 1
