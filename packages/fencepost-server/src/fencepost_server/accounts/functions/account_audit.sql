-- The audit: logins, changes of accounts, and what the users of a service did. VOLATILE throughout, as in account.sql.

create or replace function fencepost._account_note(
  p_service text, p_actor text, p_role text, p_action text, p_subject text, p_outcome text, p_detail jsonb, p_address text
) returns bigint
language sql volatile
as $$
  insert into fencepost.account_audit (at, service, actor, role, action, subject, outcome, detail, address)
  values (fencepost.clock(), p_service, p_actor, p_role, p_action, left(p_subject, 1200), p_outcome, coalesce(p_detail, '{}'), p_address)
  returning audit_id
$$;

-- Record an action before it happens: an action that is not recorded does not happen.
create or replace function fencepost.account_audit_begin(
  p_service text, p_actor text, p_role text, p_action text, p_subject text, p_detail jsonb, p_address text
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('action', p_action, 64);
  perform fencepost._check_json('detail', p_detail, 16384);
  return fencepost._account_note(p_service, p_actor, p_role, p_action, p_subject, 'begun', p_detail, p_address);
end $$;

-- Record its result: done, or the reason why not. An entry that stays at 'begun' was interrupted; the subject's own history has
-- the result.
create or replace function fencepost.account_audit_end(p_id bigint, p_outcome text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('outcome', p_outcome, 128);
  update fencepost.account_audit a set outcome = p_outcome where a.audit_id = p_id and a.outcome = 'begun';
end $$;

-- The audit of all services, newest first, below p_before; of one user when named. Served by the primary key, or by actor.
create or replace function fencepost.account_audit_page(p_actor text, p_before bigint, p_limit integer)
returns table (audit_id bigint, at timestamptz, service text, actor text, role text, action text, subject text, outcome text,
               detail jsonb, address text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_below bigint := coalesce(p_before, 9223372036854775807);
begin
  perform fencepost._check_limit(p_limit);
  if p_actor is null then
    return query select a.audit_id, a.at, a.service, a.actor, a.role, a.action, a.subject, a.outcome, a.detail, a.address
    from fencepost.account_audit a where a.audit_id < v_below order by a.audit_id desc limit p_limit;
  else
    return query select a.audit_id, a.at, a.service, a.actor, a.role, a.action, a.subject, a.outcome, a.detail, a.address
    from fencepost.account_audit a where a.actor = p_actor and a.audit_id < v_below order by a.audit_id desc limit p_limit;
  end if;
end $$;
