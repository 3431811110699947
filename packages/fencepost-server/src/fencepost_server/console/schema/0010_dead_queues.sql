-- The kernel has it now, as _job_dead_queues.
drop function if exists fencepost._console_dead_queues();
