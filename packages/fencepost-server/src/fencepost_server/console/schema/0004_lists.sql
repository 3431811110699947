-- What a page of jobs looks at has more columns. A function's columns are part of its name, so the old one goes.
drop function if exists fencepost._console_jobs_looked(text, text, bigint, integer);
