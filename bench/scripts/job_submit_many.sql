select job_id, created
from fencepost.job_submit_many('submitted', 'kind', array_fill('{"n": 1}'::jsonb, array[:batch::integer]));
