-- The log of an outbox channel that a flow reads: messages are moved into it, read by number, and removed once the flow's
-- frontier has passed them.

-- Move due messages of the channel into the log, in order for each key; returns how many. Safe for any caller, also one
-- that has lost its task: a message is moved once, under the lock that holding it takes. Locks the log's row first, so that
-- a number is never seen before a lower one. Served by outbox_due.
create or replace function fencepost.flow_gather(p_flow text, p_source text, p_channel text, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_inbox fencepost.flow_inbox;
  v_ids   bigint[];
  v_takes bigint[];
  v_count bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('flow', p_flow, 128);
  perform fencepost._check_text('source', p_source, 128);
  perform fencepost._check_text('channel', p_channel, 128);
  perform fencepost._check_limit(p_limit);
  insert into fencepost.flow_inbox (flow, source, channel) values (p_flow, p_source, p_channel) on conflict do nothing;
  select * into v_inbox from fencepost.flow_inbox i where i.flow = p_flow and i.source = p_source for update;
  if v_inbox.channel <> p_channel then
    perform fencepost._refuse('mismatch', 'flow', p_flow, jsonb_build_object('source', p_source, 'channel', p_channel),
                              jsonb_build_object('channel', v_inbox.channel));
  end if;
  -- In rounds: the next message of a key becomes visible when the one before it is settled.
  while v_count < p_limit loop
    select array_agg(h.id order by h.id), array_agg(h.take order by h.id) into v_ids, v_takes
    from fencepost.outbox_hold(p_channel, (p_limit - v_count)::integer) h;
    exit when v_ids is null;
    insert into fencepost.flow_inbox_message (flow, source, number, message_id, key, payload, headers, created_at)
    select p_flow, p_source, v_inbox.last + v_count + a.place, o.id, o.key, o.payload, o.headers, o.created_at
    from unnest(v_ids) with ordinality a (id, place), lateral (
      select * from fencepost.outbox m where m.id = a.id offset 0) o
    order by a.place;
    perform fencepost.outbox_settle_many(v_ids, v_takes, null, array_fill('sent'::text, array[cardinality(v_ids)]));
    v_count := v_count + cardinality(v_ids);
  end loop;
  if v_count > 0 then
    update fencepost.flow_inbox i set last = i.last + v_count where i.flow = p_flow and i.source = p_source;
  end if;
  return v_count;
end $$;

-- Messages after a number, in order. Served by the primary key.
create or replace function fencepost.flow_inbox_read(p_flow text, p_source text, p_after bigint, p_limit integer)
returns table (number bigint, message_id bigint, key text, payload jsonb, headers jsonb, created_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencepost._check_limit(p_limit);
  return query
  select m.number, m.message_id, m.key, m.payload, m.headers, m.created_at from fencepost.flow_inbox_message m
  where m.flow = p_flow and m.source = p_source and m.number > p_after order by m.number limit p_limit;
end $$;

-- The lowest number in the log, and the highest that was ever assigned; null and 0 for a log that was never begun.
create or replace function fencepost.flow_inbox_range(p_flow text, p_source text)
returns table (lowest bigint, last bigint)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select (select m.number from fencepost.flow_inbox_message m where m.flow = p_flow and m.source = p_source
          order by m.number limit 1),
         coalesce((select i.last from fencepost.flow_inbox i where i.flow = p_flow and i.source = p_source), 0)
$$;

-- Remove messages up to a number, the oldest first; returns how many. The caller must have committed their effects.
create or replace function fencepost.flow_inbox_trim(
  p_flow text, p_source text, p_resource text, p_token bigint, p_upto bigint, p_limit integer
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_count bigint;
begin
  perform fencepost._check_limit(p_limit);
  perform fencepost.lease_fence(p_resource, p_token);
  delete from fencepost.flow_inbox_message m where m.flow = p_flow and m.source = p_source and m.number = any (array(
    select o.number from fencepost.flow_inbox_message o
    where o.flow = p_flow and o.source = p_source and o.number <= p_upto order by o.number limit p_limit for update));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
