-- Large states: parts, named by the hash of their bytes, of the checkpoints of a task.
--
-- A part counts when a committed checkpoint or a savepoint names it. It is written in the transaction of the commit that names it first,
-- or by an operator before a regrouping, and deleted when nothing names it any more. All of that happens under the lock of the
-- resource that checkpoint_store takes, so none is deleted while a commit is about to name it. Parts are never changed: a
-- worker that lost its lease can neither write one nor replace what its successor names.

-- Write a part, or nothing if it is there. Raises ZF100 for a hash that is not that of the content.
create or replace function fencepost._flow_write_part(p_resource text, p_hash bytea, p_content bytea) returns void
language plpgsql volatile
as $$
begin
  if p_content is null or octet_length(p_content) > 268435456 then
    raise exception 'content has % bytes; at most 268435456 are allowed.', coalesce(octet_length(p_content)::text, 'no')
      using errcode = 'ZF100', detail = '{"field": "content"}';
  end if;
  if sha256(p_content) is distinct from p_hash then
    raise exception 'hash is not that of the content.' using errcode = 'ZF100', detail = '{"field": "hash"}';
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  insert into fencepost.flow_part (resource, hash, content) values (p_resource, p_hash, p_content)
  on conflict (resource, hash) do nothing;
end $$;

-- Write a part for the commit of the same transaction. Fenced by the task's lease.
create or replace function fencepost.flow_put_part(p_resource text, p_token bigint, p_hash bytea, p_content bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  perform fencepost._flow_write_part(p_resource, p_hash, p_content);
end $$;

-- Write a part for a regrouping that follows. Nothing names it yet: the regrouping refuses parts that are gone by then.
create or replace function fencepost.flow_offer_part(p_name text, p_resource text, p_hash bytea, p_content bytea) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('name', p_name, 128);
  perform fencepost._check_text('resource', p_resource, 512);
  if not starts_with(p_resource, fencepost._flow_prefix(p_name)) then
    raise exception 'resource is no task of %.', p_name using errcode = 'ZF100', detail = '{"field": "resource"}';
  end if;
  perform fencepost._flow_write_part(p_resource, p_hash, p_content);
end $$;

-- Name the parts of a checkpoint. Raises not_found for a part that does not exist. The caller has the lock of the resource.
create or replace function fencepost._flow_name_parts(p_resource text, p_number bigint, p_since bigint, p_parts bytea[])
returns void
language plpgsql volatile
as $$
declare
  v_lost  text;
  v_bytes bigint;
begin
  select min(encode(h, 'hex')) filter (where p.hash is null), coalesce(sum(octet_length(p.content)), 0) into v_lost, v_bytes
  from unnest(p_parts) h left join fencepost.flow_part p on p.resource = p_resource and p.hash = h;
  if v_lost is not null then
    perform fencepost._refuse('not_found', 'checkpoint', p_resource || '#' || p_number, jsonb_build_object('op', 'name parts'),
                              jsonb_build_object('why', 'part', 'hash', v_lost));
  end if;
  insert into fencepost.flow_state (resource, number, since, parts, bytes)
  values (p_resource, p_number, coalesce(p_since, p_number), coalesce(p_parts, '{}'), v_bytes);
end $$;

-- Say which parts a checkpoint has, within the transaction that makes it durable, and with which one a restore of it begins: p_since, or
-- null for the checkpoint itself. Raises not_found for a part or a checkpoint that does not exist.
create or replace function fencepost.flow_name_parts(
  p_resource text, p_token bigint, p_number bigint, p_since bigint, p_parts bytea[]
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  if not exists (select 1 from fencepost.checkpoint c where c.resource = p_resource and c.number = p_number
                 and c.status in ('stored', 'committed')) then
    perform fencepost._checkpoint_refuse('not_found', p_resource, p_number, p_token, 'name parts', null);
  end if;
  perform fencepost._flow_name_parts(p_resource, p_number, p_since, p_parts);
end $$;

-- The content of a part; null when it is gone. Served by the primary key.
create or replace function fencepost.flow_part_content(p_resource text, p_hash bytea) returns bytea
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$ select p.content from fencepost.flow_part p where p.resource = p_resource and p.hash = p_hash $$;

-- The first checkpoint that a restore of p_number reads.
create or replace function fencepost._flow_since(p_resource text, p_number bigint) returns bigint
language sql stable
as $$
  select coalesce(
    (select s.since from fencepost.flow_state s where s.resource = p_resource and s.number = p_number),
    (select c.number from fencepost.checkpoint c where c.resource = p_resource and c.whole
       and c.status in ('stored', 'committed') and c.number <= p_number order by c.number desc limit 1))
$$;

-- What checkpoint_restore answers, with the parts of each checkpoint. Fenced.
create or replace function fencepost.flow_restore_task(p_resource text, p_token bigint)
returns table (number bigint, status text, whole boolean, frontier jsonb, state bytea, handles jsonb, parts bytea[], bytes bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_since bigint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  v_since := fencepost._flow_since(p_resource, (
    select c.number from fencepost.checkpoint c where c.resource = p_resource and c.status in ('stored', 'committed')
    order by c.number desc limit 1));
  return query
  select needed.*, s.parts, s.bytes from (
    select c.number, c.status, c.whole, c.frontier, c.state, c.handles from fencepost.checkpoint c
    where c.resource = p_resource and c.status in ('stored', 'committed') and c.number >= v_since
    union all
    select c.number, c.status, c.whole, c.frontier, c.state, c.handles from fencepost.checkpoint c
    where c.resource = p_resource and c.status = 'begun'
  ) needed left join fencepost.flow_state s on s.resource = p_resource and s.number = needed.number
  order by needed.status = 'begun', needed.number;
end $$;

-- Delete the parts of a task that neither a checkpoint nor a savepoint names. Takes the lock of the resource.
create or replace function fencepost._flow_sweep_parts(p_resource text) returns void
language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  delete from fencepost.flow_part p
  where p.resource = p_resource and not exists (
    select 1 from (
      select unnest(s.parts) as hash from fencepost.flow_state s where s.resource = p_resource
      union all
      select unnest(s.parts) from fencepost.flow_savepoint s
      where s.flow = split_part(substr(p_resource, 6), '/', 1) and s.resource = p_resource) named
    where named.hash = p.hash);
end $$;

-- What checkpoint_prune does, and deletes the parts that nothing names any more. Returns the number of checkpoints deleted.
create or replace function fencepost.flow_prune(p_resource text, p_token bigint, p_keep integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_floor bigint;
  v_count bigint;
begin
  perform fencepost._checkpoint_fence(p_resource, p_token);
  if p_keep is null or p_keep < 1 then
    raise exception 'keep is %; at least 1 checkpoint must be kept.', coalesce(p_keep::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "keep"}';
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_resource, 6089));
  -- Of the kept ones the oldest; what it needs is what all of them need.
  v_floor := fencepost._flow_since(p_resource, (
    select min(k.number) from (select c.number from fencepost.checkpoint c
    where c.resource = p_resource and c.status in ('stored', 'committed') order by c.number desc limit p_keep) k));
  delete from fencepost.checkpoint c where c.resource = p_resource and c.number < v_floor and c.status <> 'begun';
  get diagnostics v_count = row_count;
  delete from fencepost.flow_state s where s.resource = p_resource and s.number < v_floor;
  if exists (select 1 from fencepost.flow_part p where p.resource = p_resource) then
    perform fencepost._flow_sweep_parts(p_resource);
  end if;
  return v_count;
end $$;
