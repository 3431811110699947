-- Answers that carry what the database saw: their functions are dropped, because a function keeps its columns.
drop function if exists fencepost._job_note_refused(bigint[], bigint[], text, bigint[], text);
drop function if exists fencepost.job_finish_many(bigint[], bigint[], text, text[], jsonb[]);
drop function if exists fencepost.job_leave_many(bigint[], bigint[], text, text[], text[], interval[], text[]);
