-- Forget a consumer that leaves. With entries pending it stays: removing it would remove them from the list that tells
-- which consumer has which entry.
--
--   KEYS[1]  <stream>  stream
--   ARGV[1]  group     ARGV[2]  consumer
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0
