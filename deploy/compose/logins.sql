-- The logins behind DATABASE_URL and CONSOLE_READ_DATABASE_URL. May run any number of times.
select 'create role fencepost_service login' where not exists (select 1 from pg_roles where rolname = 'fencepost_service') \gexec
select 'create role fencepost_viewer login' where not exists (select 1 from pg_roles where rolname = 'fencepost_viewer') \gexec
alter role fencepost_service password :'service';
alter role fencepost_viewer password :'viewer';
grant fencepost_app to fencepost_service;
grant fencepost_read to fencepost_viewer;
