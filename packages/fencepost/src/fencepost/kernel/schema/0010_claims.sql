-- One is told by now whether to record what it refuses, the other the how-manieth call it is.
drop function if exists fencepost._job_claim(bigint[], text, interval);
drop function if exists fencepost._lane_parts(integer, integer[]);
