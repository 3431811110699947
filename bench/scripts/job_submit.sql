select job_id, created from fencepost.job_submit('submitted', 'kind', '{"n": 1}');
