"""Another takes over whatever runs, though no lease has expired: its owner had not noticed that it had."""

from typing import LiteralString

TAKEN_OVER: LiteralString = """
with gone as (delete from fencepost.job_running r returning r.*)
insert into fencepost.job_running
  (job_id, attempt, tries, queue, priority, owner, lease, claimed_at, renewed_at, expires_at)
select job_id, attempt + 1, tries, queue, priority, 'successor', lease, claimed_at, renewed_at,
       expires_at + interval '1 hour'
from gone
"""
