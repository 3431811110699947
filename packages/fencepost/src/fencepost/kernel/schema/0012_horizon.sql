-- A claim can be told where to begin to look (functions/job_claim.sql). The functions that could not be told go: with both, a call
-- that says nothing of it would fit two.
drop function if exists fencepost.job_claim_lanes(text, text, integer, interval, boolean, bigint);
drop function if exists fencepost._job_due(text, integer, integer, boolean, timestamptz);
