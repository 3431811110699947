-- Single sign-on: an identity provider has authenticated a person. The user is found by the provider's subject, never by the user
-- name, which may be reassigned there. The role is the one that the provider gives now. `refused` is null, 'disabled', or
-- 'name_taken' by another user.
create or replace function fencepost.console_sign_on(
  p_name text, p_role text, p_issuer text, p_subject text, p_address text
) returns table (name text, role text, refused text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := fencepost.clock();
  v_user fencepost.console_user;
begin
  perform fencepost._require_read_committed();
  perform fencepost._console_check_name(p_name);
  perform fencepost._console_check_role(p_role);
  perform fencepost._check_text('issuer', p_issuer, 512);
  perform fencepost._check_text('subject', p_subject, 256);
  perform fencepost._check_text('address', p_address, 256);
  insert into fencepost.console_user (name, role, made_at, made_by, issuer, subject)
  values (p_name, p_role, v_now, 'single sign-on', p_issuer, p_subject)
  on conflict do nothing;
  select * into v_user from fencepost.console_user u where u.issuer = p_issuer and u.subject = p_subject for update;
  if not found then
    name := p_name; role := p_role; refused := 'name_taken';
  else
    name := v_user.name; role := p_role;
    refused := case when v_user.disabled_at is not null then 'disabled' end;
    update fencepost.console_user u set role = p_role where u.name = v_user.name and refused is null and u.role <> p_role;
  end if;
  perform fencepost._console_note(name, role, 'login', name, coalesce(refused, 'done'),
    jsonb_build_object('issuer', p_issuer, 'subject', p_subject), p_address);
  return next;
end $$;
