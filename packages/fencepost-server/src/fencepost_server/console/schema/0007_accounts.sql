-- Users, links, tokens and the audit move to the accounts, which the services share. Sessions end: their users log in again.
insert into fencepost.account_service_role (service, role, rank)
values ('console', 'viewer', 1), ('console', 'operator', 2), ('console', 'admin', 3);

-- A name that the judge has too is one account. The console's password stays, even none: the judge's would open the console.
-- Only a link could make a name with other characters; it had no password, and no account may have it.
insert into fencepost.account as a (name, password, made_at, made_by, issuer, subject)
select u.name, u.password, u.made_at, u.made_by, u.issuer, u.subject from fencepost.console_user u
where u.name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'
on conflict (name) do update set password = excluded.password, issuer = excluded.issuer, subject = excluded.subject;

insert into fencepost.account_role (service, name, role, made_at, made_by, disabled_at)
select 'console', u.name, u.role, u.made_at, u.made_by, u.disabled_at
from fencepost.console_user u join fencepost.account a on a.name = u.name;

insert into fencepost.account_ticket (digest, service, name, made_at, expires_at)
select t.digest, 'console', t.name, t.made_at, t.expires_at
from fencepost.console_ticket t join fencepost.account a on a.name = t.name;

-- In their order, with new numbers: the judge had tokens of the same numbers.
insert into fencepost.account_token (digest, service, name, label, role, made_at, expires_at, used_at, revoked_at)
select t.digest, 'console', t.name, t.label, t.role, t.made_at, t.expires_at, t.used_at, t.revoked_at
from fencepost.console_token t join fencepost.account a on a.name = t.name order by t.token_id;

insert into fencepost.account_audit (at, service, actor, role, action, subject, outcome, detail, address)
select a.at, 'console', a.actor, a.role, a.action, a.subject, a.outcome, a.detail, a.address
from fencepost.console_audit a order by a.audit_id;

-- Consoles that count minutes take turns by the lock on this row, which the key of the cookies was used for. The read-only role
-- cannot take it.
create table fencepost.console_turn (
  only_row boolean not null default true,
  constraint console_turn_pkey primary key (only_row),
  constraint console_turn_has_one_row check (only_row)
);
insert into fencepost.console_turn default values;
