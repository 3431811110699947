-- Send one entry to one receiver, unless the channel was lost, is asked to be rewound, or is full.
--
-- KEYS[1]  {flow/group}:channel:<sender>      stream of entries, removed when they are committed
-- KEYS[2]  {flow/group}:incarnation:<sender>  the sender that fills it; gone after a wipe
-- KEYS[3]  {flow/group}:rewind:<sender>       set by a receiver that met a gap
-- ARGV     incarnation, greatest length, then the fields of the entry
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('EXISTS', KEYS[3]) == 1 then
  return 'lost'
end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[2]) then
  return 'full'
end
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
