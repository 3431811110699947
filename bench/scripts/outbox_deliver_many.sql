select array_agg(id) as ids, array_agg(take) as takes, max(payload::text) as payload
from fencepost.outbox_take('bench', 'owner', interval '10 minutes', :batch, false) \gset
select id, refusal
from fencepost.outbox_settle_many(:ids::bigint[], :takes::bigint[], 'owner', array_fill('sent'::text, array[:batch::integer]));
