\set first :base + :client_id * :span + :i
\set i :i + :batch
select job_id, refusal
from fencepost.job_finish_many(array(select generate_series(:first::bigint, :first::bigint + :batch::bigint - 1)),
                               array_fill(1::bigint, array[:batch::integer]), 'owner',
                               array_fill('ok'::text, array[:batch::integer]),
                               array_fill('{"n": 1}'::jsonb, array[:batch::integer]));
