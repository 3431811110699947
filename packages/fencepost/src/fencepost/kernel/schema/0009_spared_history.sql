-- A dead job keeps its history until the job itself goes, however old that is. What pruning has met and spared leaves the
-- index that pruning walks, so that it does not meet it again with every tick; the second index finds it when the job goes.
alter table fencepost.event add column spared boolean not null default false;
alter table fencepost.refusal add column spared boolean not null default false;

drop index fencepost.event_by_time;
create index event_by_age on fencepost.event (at) where not spared;
create index event_spared on fencepost.event (noun, subject) where spared;

drop index fencepost.refusal_by_time;
create index refusal_by_age on fencepost.refusal (at) where not spared;
create index refusal_spared on fencepost.refusal (noun, subject) where spared;

-- It became _queue_check_room, which knows how many are to come.
drop function if exists fencepost._queue_check_bound(text);
