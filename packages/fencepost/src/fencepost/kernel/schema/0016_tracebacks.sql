-- They take the tracebacks of handlers now, which the history keeps.
drop function if exists fencepost._job_leave(bigint, bigint, text, text, text, interval);
drop function if exists fencepost.job_leave_many(bigint[], bigint[], text, text[], text[], interval[]);
