-- Webhooks: their registration, their secrets, and what services publish to them.
--
-- Locks: the webhook's row. A publication takes it FOR KEY SHARE, which only its removal waits for: no message is put on
-- the channel of a webhook that is gone. Served by the primary keys.

-- Most secrets that a webhook may have at a time: rotations whose ends overlap.
create or replace function fencepost._webhook_secrets_max() returns integer
language sql immutable parallel safe
as $$ select 5 $$;

create or replace function fencepost._webhook_lock(p_name text, p_attempted jsonb) returns fencepost.webhook
language plpgsql volatile
as $$
declare
  v_webhook fencepost.webhook;
begin
  perform fencepost._check_text('name', p_name, 64);
  select * into v_webhook from fencepost.webhook w where w.name = p_name for update;
  if not found then
    perform fencepost._refuse('not_found', 'webhook', p_name, p_attempted, null);
  end if;
  return v_webhook;
end $$;

create or replace function fencepost._webhook_check_url(p_url text) returns void
language plpgsql volatile
as $$
begin
  perform fencepost._check_text('url', p_url, 2048);
  if p_url !~ '^https?://[^/?#[:space:]]+[^[:space:]]*$' then
    raise exception 'url must begin with http:// or https:// and a host.' using errcode = 'ZF100', detail = '{"field": "url"}';
  end if;
end $$;

create or replace function fencepost._webhook_set_topics(p_name text, p_topics text[]) returns void
language plpgsql volatile
as $$
declare
  v_topic text;
begin
  perform fencepost._check_texts('topics', p_topics, 64);
  for v_topic in select t from unnest(p_topics) t
                 where not exists (select 1 from fencepost.webhook_known_topic k where k.topic = t) loop
    raise exception 'topics: % is not published by any installed service. Published: %.', v_topic,
      coalesce((select string_agg(k.topic, ', ' order by k.topic) from fencepost.webhook_known_topic k), 'nothing')
      using errcode = 'ZF100', detail = '{"field": "topics"}';
  end loop;
  delete from fencepost.webhook_topic t where t.name = p_name and t.topic <> all (p_topics);
  insert into fencepost.webhook_topic (topic, name) select distinct t, p_name from unnest(p_topics) t on conflict do nothing;
end $$;

-- A new secret. 366 random bits; only the caller of this call sees it.
create or replace function fencepost._webhook_make_secret(p_name text, p_now timestamptz) returns text
language plpgsql volatile
as $$
declare
  v_secret text := 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                                             || uuid_send(gen_random_uuid())), 'hex');
begin
  insert into fencepost.webhook_secret (name, secret, made_at) values (p_name, v_secret, p_now);
  return v_secret;
end $$;

-- Register a webhook; returns the secret that signs its requests, or null for one without a URL. Raises duplicate.
create or replace function fencepost.webhook_add(p_name text, p_url text, p_topics text[], p_actor text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  if p_name is null or p_name !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$' then
    raise exception 'name must be up to 64 letters, digits, dots, hyphens and underscores, and begin with a letter or digit.'
      using errcode = 'ZF100', detail = '{"field": "name"}';
  end if;
  if p_url is not null then
    perform fencepost._webhook_check_url(p_url);
  end if;
  insert into fencepost.webhook (name, url, made_at, made_by) values (p_name, p_url, v_now, p_actor)
  on conflict (name) do nothing;
  if not found then
    perform fencepost._refuse('duplicate', 'webhook', p_name, '{}', null);
  end if;
  perform fencepost._webhook_set_topics(p_name, coalesce(p_topics, '{}'));
  perform fencepost._event(v_now, 'webhook', p_name, 'added', p_actor, null, jsonb_build_object('topics', p_topics));
  return case when p_url is not null then fencepost._webhook_make_secret(p_name, v_now) end;
end $$;

-- Change the URL or the topics; null leaves them. A webhook that gets its first URL gets its first secret, which is returned.
create or replace function fencepost.webhook_change(p_name text, p_url text, p_topics text[], p_actor text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._webhook_lock(p_name, jsonb_build_object('change', p_topics));
  if p_url is not null then
    perform fencepost._webhook_check_url(p_url);
    update fencepost.webhook w set url = p_url where w.name = p_name;
  end if;
  if p_topics is not null then
    perform fencepost._webhook_set_topics(p_name, p_topics);
  end if;
  perform fencepost._event(v_now, 'webhook', p_name, 'changed', p_actor, null,
                           jsonb_build_object('url', p_url is not null, 'topics', p_topics));
  if p_url is not null and not exists (select 1 from fencepost.webhook_secret s where s.name = p_name) then
    return fencepost._webhook_make_secret(p_name, v_now);
  end if;
  return null;
end $$;

-- Make a new secret and return it. The old ones sign beside it for p_overlap: a receiver that knows either accepts every request.
create or replace function fencepost.webhook_rotate(p_name text, p_overlap interval, p_actor text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_wait('overlap', p_overlap, interval '90 days');
  perform fencepost._webhook_lock(p_name, jsonb_build_object('rotate', p_overlap));
  v_now := fencepost.clock();
  update fencepost.webhook_secret s set expires_at = least(s.expires_at, v_now + p_overlap) where s.name = p_name;
  delete from fencepost.webhook_secret s where s.name = p_name and s.expires_at <= v_now;
  if (select count(*) from fencepost.webhook_secret s where s.name = p_name) >= fencepost._webhook_secrets_max() then
    raise exception 'overlap: the webhook has % secrets that have not ended. Wait, or rotate with a shorter overlap.',
      fencepost._webhook_secrets_max() using errcode = 'ZF100', detail = '{"field": "overlap"}';
  end if;
  perform fencepost._event(v_now, 'webhook', p_name, 'rotated', p_actor, null, jsonb_build_object('overlap', p_overlap));
  return fencepost._webhook_make_secret(p_name, v_now);
end $$;

-- Stop or continue delivering. Messages are kept while it is paused.
create or replace function fencepost.webhook_pause(p_name text, p_is_paused boolean, p_actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._webhook_lock(p_name, jsonb_build_object('pause', p_is_paused));
  update fencepost.webhook w set paused_at = case when p_is_paused then coalesce(w.paused_at, v_now) end where w.name = p_name;
  perform fencepost._event(v_now, 'webhook', p_name, case when p_is_paused then 'paused' else 'resumed' end, p_actor, null, '{}');
end $$;

-- Remove a webhook with its secrets. Messages that wait for it end as dead; returns how many.
create or replace function fencepost.webhook_remove(p_name text, p_actor text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now   timestamptz := fencepost.clock();
  v_count bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._webhook_lock(p_name, '{"remove": true}');
  delete from fencepost.webhook w where w.name = p_name;
  with gone as (
    delete from fencepost.outbox o where o.id in (
      select l.id from fencepost.outbox l where l.channel = p_name order by l.id for update)
    returning o.*
  )
  insert into fencepost.outbox_settled (id, channel, key, payload, headers, state, created_at, settled_at, attempts, take, owner,
                                        result, last_error)
  select g.id, g.channel, g.key, g.payload, g.headers, 'dead', g.created_at, v_now, g.attempts, g.take, g.owner, null,
         'the webhook was removed'
  from gone g;
  get diagnostics v_count = row_count;
  perform fencepost._event(v_now, 'webhook', p_name, 'removed', p_actor, null, jsonb_build_object('dead', v_count));
  return v_count;
end $$;

-- Deliver a dead message of a webhook again, under the same idempotency key; returns the id of the new message. It comes
-- behind those of its key that wait.
create or replace function fencepost.webhook_redeliver(p_id bigint, p_actor text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_dead fencepost.outbox_settled;
  v_id   bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  select * into v_dead from fencepost.outbox_settled s
  where s.id = p_id and s.state = 'dead' and exists (select 1 from fencepost.webhook w where w.name = s.channel for key share);
  if not found then
    perform fencepost._refuse('not_found', 'outbox', coalesce(p_id::text, 'null'), '{"redeliver": true}', null);
  end if;
  v_id := fencepost._outbox_put(v_dead.channel, v_dead.key, v_dead.payload,
    v_dead.headers || jsonb_build_object('idempotency_key', coalesce(v_dead.headers ->> 'idempotency_key',
                                                                     'fencepost-outbox-' || v_dead.id)), null);
  perform fencepost._event(fencepost.clock(), 'outbox', p_id::text, 'redelivered', p_actor, null, jsonb_build_object('as', v_id));
  return v_id;
end $$;

-- What a relay needs: where to deliver (nowhere while it is paused), and the secrets that sign now, the newest first. It
-- returns secrets, so it is VOLATILE: the read-only role may not call it.
create or replace function fencepost.webhook_deliverable() returns table (name text, url text, secrets text[])
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := fencepost.clock();
begin
  return query
  select w.name, case when w.paused_at is null then w.url end, array(select s.secret from fencepost.webhook_secret s
                              where s.name = w.name and (s.expires_at is null or s.expires_at > v_now) order by s.secret_id desc)
  from fencepost.webhook w order by w.name;
end $$;

-- Whether any webhook has the topic: asked before an event is composed.
create or replace function fencepost._webhook_is_heard(p_topic text) returns boolean
language sql stable
as $$ select exists (select 1 from fencepost.webhook_topic t where t.topic = p_topic) $$;

-- Put an event on the channel of every webhook that has the topic, in the caller's transaction; webhooks in order of name.
-- Messages of one key arrive in order. p_id is the event's own id: the idempotency key of every delivery.
create or replace function fencepost._webhook_publish(p_topic text, p_key text, p_id text, p_payload jsonb, p_trace text)
returns void
language plpgsql volatile
as $$
declare
  v_name text;
begin
  for v_name in select w.name from fencepost.webhook_topic t join fencepost.webhook w on w.name = t.name
                where t.topic = p_topic order by t.name for key share of w loop
    perform fencepost._outbox_put(v_name, p_key, p_payload,
      jsonb_strip_nulls(jsonb_build_object('idempotency_key', p_id, 'trace_id', p_trace)), null);
  end loop;
end $$;

-- What may be read of a webhook: never a secret, and of the URL only the host, because its path or query may hold one.
create or replace view fencepost.webhooks as
  select w.name, regexp_replace(w.url, '^(https?://)(?:[^/?#]*@)?([^/?#]*).*$', '\1\2') as host,
         array(select t.topic from fencepost.webhook_topic t where t.name = w.name order by t.topic) as topics,
         w.paused_at, w.made_at, w.made_by,
         (select count(*) from fencepost.webhook_secret s
          where s.name = w.name and (s.expires_at is null or s.expires_at > fencepost.clock())) as secrets,
         (select min(s.expires_at) from fencepost.webhook_secret s
          where s.name = w.name and s.expires_at > fencepost.clock()) as rotation_ends_at,
         (select count(*) from fencepost.outbox_settled d where d.channel = w.name and d.state = 'dead') as dead
  from fencepost.webhook w;
