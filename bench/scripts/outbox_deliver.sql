select min(id) as id, min(take) as take, min(payload::text) as payload
from fencepost.outbox_take('bench', 'owner', interval '10 minutes', 1, false) \gset
select fencepost.outbox_settle(:id, :take, 'owner', 'sent');
