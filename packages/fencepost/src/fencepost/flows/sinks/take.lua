-- Take the values of one checkpoint of one task, once: write, frontier and acknowledgement in one script.
--
-- KEYS[1]  the structure that the values go to
-- KEYS[2]  hash: resource of a task -> number of the last checkpoint that was taken
-- KEYS[3..] the source's streams, if their entries are to be acknowledged here
-- ARGV     kind, resource, number, the newest number that the caller has seen here, group (or ''), count of streams, how
--          far each is taken (or ''), values...
--
-- A script is not rolled back, so what could fail is looked at before the first write.
local kind, resource, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = tonumber(redis.call('HGET', KEYS[2], resource) or '0')
-- It was there, and is not any more: to go on would hide the loss.
if held < tonumber(ARGV[4]) then
  return redis.error_reply('BEHIND ' .. KEYS[2] .. ' of ' .. resource .. ' was at ' .. ARGV[4] .. ' and is at ' .. held)
end
if number <= held then
  return 0
end
local wanted = {list = 'list', hash = 'hash', set = 'set', stream = 'stream'}
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= wanted[kind] then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is a ' .. found .. ', not a ' .. kind)
end
local streams = tonumber(ARGV[6])
local first = 7 + streams
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
for i = 1, streams do
  while ARGV[6 + i] ~= '' do
    -- A group that is not there has nothing pending: what was written stays written.
    local pending = redis.pcall('XPENDING', KEYS[2 + i], ARGV[5], '-', ARGV[6 + i], step)
    if pending.err or #pending == 0 then
      break
    end
    local ids = {}
    for j, entry in ipairs(pending) do
      ids[j] = entry[1]
    end
    redis.call('XACK', KEYS[2 + i], ARGV[5], unpack(ids))
  end
end
redis.call('HSET', KEYS[2], resource, number)
return 1
