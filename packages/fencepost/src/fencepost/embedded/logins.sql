-- The two login roles of an embedded database. Safe to run again.
--
-- The group roles fencepost_app and fencepost_read come from the migrations, which must have run. There is no password:
-- a process that can reach the socket's directory is its owner's.

do $$
begin
    if not exists (select from pg_roles where rolname = 'fencepost_service') then
        create role fencepost_service login;
    end if;
    if not exists (select from pg_roles where rolname = 'fencepost_viewer') then
        create role fencepost_viewer login;
    end if;
end
$$;

grant fencepost_app to fencepost_service;
grant fencepost_read to fencepost_viewer;
