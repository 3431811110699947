\set first :base + :client_id * :span + :i
\set i :i + :batch
select number, status, whole, frontier::text, state, handles::text
from fencepost.checkpoint_restore('lease-' || :first, 1);
