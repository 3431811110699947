-- Labels: what jobs are found by. A tag is the label tag:NAME. An argument that its handler declares as searched is the label
-- arg:NAME=VALUE, the value as JSON; a long one by its digest.

create or replace function fencepost._job_argument_label(p_name text, p_value jsonb) returns text
language sql immutable
as $$
  select 'arg:' || p_name || '=' || case when octet_length(p_value::text) <= 256 then p_value::text
                                         else 'sha256:' || encode(sha256(convert_to(p_value::text, 'UTF8')), 'hex') end
$$;

-- Label one job. An argument that the payload does not have has no label.
create or replace function fencepost._job_label(p_id bigint, p_payload jsonb, p_tags text[], p_search_by text[]) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_texts('tag', p_tags, 128);
  perform fencepost._check_texts('search_by', p_search_by, 128);
  insert into fencepost.job_label (label, job_id)
  select 'tag:' || t, p_id from unnest(p_tags) t
  union
  select fencepost._job_argument_label(s, p_payload -> s), p_id from unnest(p_search_by) s where p_payload ? s;
end $$;

-- The labels that a search asks for, the arguments first: they match fewer jobs. Refuses an argument that no job is labelled with,
-- because the answer would always be empty. Served by job_label_pkey.
create or replace function fencepost._job_search_labels(p_tags text[], p_arguments jsonb) returns text[]
language plpgsql stable
as $$
declare
  v_name text;
begin
  perform fencepost._check_texts('tag', p_tags, 128);
  if jsonb_typeof(p_arguments) <> 'object' then
    raise exception 'arguments must be an object of names and values.' using errcode = 'ZF100', detail = '{"field": "arguments"}';
  end if;
  select a.name into v_name from jsonb_object_keys(p_arguments) a (name)
  where not exists (select 1 from fencepost.job_label l where l.label >= 'arg:' || a.name || '=' and l.label < 'arg:' || a.name || '>')
  limit 1;
  if found then
    raise exception 'No job can be found by its argument %: its handler declares the arguments that are searched with search_by.', v_name
      using errcode = 'ZF100', detail = jsonb_build_object('field', v_name);
  end if;
  return array(select fencepost._job_argument_label(a.key, a.value) from jsonb_each(p_arguments) a order by a.key)
      || array(select 'tag:' || t from unnest(p_tags) t);
end $$;

-- The ids of one page of the jobs that have all these tags and arguments, newest first, below p_before_id. Walks the index of one
-- label, at most p_scan entries of it (null: all), and looks the others up. Served by job_label_pkey and the primary keys.
create or replace function fencepost.job_search(
  p_tags text[], p_arguments jsonb default '{}', p_state text default null, p_queue text default null, p_kind text default null,
  p_before_id bigint default null, p_limit integer default 50, p_scan integer default null
) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_labels text[] := fencepost._job_search_labels(p_tags, coalesce(p_arguments, '{}'));
begin
  perform fencepost._check_limit(p_limit);
  if p_state is not null then
    perform fencepost._check_word('state', p_state, array['pending', 'dispatched', 'running', 'finished', 'dead', 'cancelled']);
  end if;
  if v_labels = '{}' then
    raise exception 'tags and arguments are empty; a search names one.' using errcode = 'ZF100', detail = '{"field": "tags"}';
  end if;
  return query
  select f.job_id from (
    select l.job_id from fencepost.job_label l where l.label = v_labels[1] and l.job_id < coalesce(p_before_id, 9223372036854775807)
    order by l.job_id desc limit p_scan) f
  where not exists (select 1 from unnest(v_labels[2:]) other
                    where not exists (select 1 from fencepost.job_label l where l.label = other and l.job_id = f.job_id))
    and ((p_queue is null and p_kind is null) or exists (
      select 1 from fencepost.job j where j.job_id = f.job_id and (p_queue is null or j.queue = p_queue)
        and (p_kind is null or j.kind = p_kind)))
    and (p_state is null or p_state = fencepost._job_seen(f.job_id) ->> 'state')
  limit p_limit;
end $$;
