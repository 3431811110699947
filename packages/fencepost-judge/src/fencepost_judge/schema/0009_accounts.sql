-- Users and tokens move to the accounts, which the services share. Sessions end: their users log in again.
insert into fencepost.account_service_role (service, role, rank)
values ('judge', 'contestant', 1), ('judge', 'jury', 2), ('judge', 'admin', 3);

-- A name that the console has too is one account. The console's password stays, even none: the judge's would open the console.
-- Tokens open the judge only, and the account's owner can log in to the judge with one.
insert into fencepost.account (name, password, made_at, made_by)
select u.name, u.password, u.made_at, u.made_by from fencepost.judge_user u on conflict (name) do nothing;

insert into fencepost.account_role (service, name, role, made_at, made_by, disabled_at)
select 'judge', u.name, u.role, u.made_at, u.made_by, u.disabled_at from fencepost.judge_user u;

-- In their order, with new numbers: the console had tokens of the same numbers. A token had the role of its user.
insert into fencepost.account_token (digest, service, name, label, role, made_at, expires_at, used_at, revoked_at)
select t.digest, 'judge', t.name, t.label, u.role, t.made_at, t.expires_at, t.used_at, t.revoked_at
from fencepost.judge_token t join fencepost.judge_user u on u.name = t.name order by t.token_id;

alter table fencepost.judge_allowance
  drop constraint judge_allowance_name_fkey,
  add constraint judge_allowance_has_an_account foreign key (name) references fencepost.account;

-- Workers that enter take turns by the lock on this row, which the key of the cookies was used for. The read-only role cannot take it.
create table fencepost.judge_turn (
  only_row boolean not null default true,
  constraint judge_turn_pkey primary key (only_row),
  constraint judge_turn_has_one_row check (only_row)
);
insert into fencepost.judge_turn default values;
