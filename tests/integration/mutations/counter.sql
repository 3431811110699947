-- A small service that adopts the pipeline: counters that can be added to.
create table fencepost.counter (name text primary key, version bigint not null, value bigint not null);
insert into fencepost.counter values ('hits', 1, 0);

create function fencepost.counter_look(p_scope text, p_key text, p_digest text, p_name text)
returns table (outcome text, response jsonb, version bigint)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  select k.outcome, k.response into outcome, response from fencepost._mutation_known(p_scope, p_key, p_digest) k;
  version := (select c.version from fencepost.counter c where c.name = p_name);
  return next;
end $$;

create function fencepost.counter_add(
  p_scope text, p_key text, p_digest text, p_response jsonb, p_name text, p_version bigint, p_amount bigint
) returns table (outcome text, response jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_version bigint;
begin
  select c.outcome, c.response into outcome, response from fencepost._mutation_claim(p_scope, p_key, p_digest, p_response) c;
  if outcome = 'claimed' then
    select c.version into v_version from fencepost.counter c where c.name = p_name for update;
    if v_version is distinct from p_version then
      perform fencepost._mutation_conflict('counter ' || p_name, p_version, v_version);
    end if;
    update fencepost.counter c set value = c.value + p_amount, version = c.version + 1 where c.name = p_name;
  end if;
  return next;
end $$;
grant execute on function fencepost.counter_look, fencepost.counter_add to fencepost_app;
