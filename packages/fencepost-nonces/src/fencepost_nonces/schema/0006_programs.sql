-- Programs with a token of their own call this service's API (accounts/programs.py).
insert into fencepost.account_service_role (service, role, rank) values ('nonces', 'program', 1);
