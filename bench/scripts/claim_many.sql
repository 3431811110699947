\set first :base + :client_id * :span + :i
\set i :i + :batch
select key, outcome, response::text, claimed_at
from fencepost.claim_many('bench', array(select 'key-' || i from generate_series(:first::bigint, :first::bigint + :batch::bigint - 1) i));
