-- How a delivery ends. Every settlement is fenced by its take: a late sender cannot settle its successor's
-- delivery.
--
--   outcome   the message                                   its key
--   sent      moves to outbox_settled                       freed
--   dead      moves to outbox_settled (a definite failure)  freed
--   failed    waits p_delay, then is due again              held: order is kept
--   queued    due again after p_delay, attempt not counted  held
--   unknown   waits p_delay, then to be reconciled          held
--   parked    waits for an operator                         held

create or replace function fencepost._outbox_check_outcome(p_outcome text, p_error text, p_result jsonb) returns void
language plpgsql volatile
as $$
begin
  -- Checked inline, because a batch checks a hundred times: the check functions are called only to raise the
  -- error.
  if p_outcome is null or p_outcome not in ('sent', 'dead', 'failed', 'queued', 'unknown', 'parked') then
    perform fencepost._check_word('outcome', p_outcome, array['sent', 'dead', 'failed', 'queued', 'unknown', 'parked']);
  end if;
  if pg_column_size(p_result) > 65536 then
    perform fencepost._check_json('result', p_result, 65536);
  end if;
  if octet_length(p_error) > 8192 then
    raise exception 'error has % bytes; at most 8192 are allowed.', octet_length(p_error)
      using errcode = 'ZF100', detail = '{"field": "error"}';
  end if;
end $$;

-- Apply an outcome to a message whose row is locked and whose take was checked.
create or replace function fencepost._outbox_apply(
  p_message fencepost.outbox, p_outcome text, p_error text, p_delay interval, p_result jsonb
) returns void
language plpgsql volatile
as $$
declare
  v_now      timestamptz := fencepost.clock();
  -- A take counted its attempt; a hold (no owner on the row) counts it here.
  v_attempts integer := p_message.attempts + case when p_message.state in ('queued', 'failed') then 1 else 0 end;
begin
  if p_outcome in ('sent', 'dead') then
    with gone as (delete from fencepost.outbox o where o.id = p_message.id returning o.*)
    insert into fencepost.outbox_settled (id, channel, key, payload, headers, state, created_at, settled_at, attempts, take,
                                          owner, result, last_error)
    select g.id, g.channel, g.key, g.payload, g.headers, p_outcome, g.created_at, v_now, v_attempts, g.take, g.owner,
           p_result, p_error
    from gone g;
    if p_message.key is not null then
      perform fencepost._outbox_promote(p_message.channel, p_message.key);
    end if;
  else
    update fencepost.outbox o
    set state = p_outcome, not_before = v_now + coalesce(p_delay, interval '0'), owner = null, taken_until = null,
        last_error = p_error, attempts = greatest(0, v_attempts - case when p_outcome = 'queued' then 1 else 0 end)
    where o.id = p_message.id;
  end if;
  if p_outcome <> 'sent' then
    perform fencepost._event(v_now, 'outbox', p_message.id::text, p_outcome, p_message.owner, p_message.take,
                             jsonb_build_object('error', p_error, 'attempts', v_attempts));
  end if;
end $$;

-- Settle one; never raises for a refusal.
create or replace function fencepost._outbox_settle_try(
  p_id bigint, p_take bigint, p_owner text, p_outcome text, p_error text, p_delay interval, p_result jsonb,
  out refusal text, out seen jsonb
) language plpgsql volatile
as $$
declare
  v_message fencepost.outbox;
  v_settled fencepost.outbox_settled;
begin
  select * into v_message from fencepost.outbox o where o.id = p_id for update;
  if found then
    -- A service's message is settled by the service's own function.
    refusal := coalesce(fencepost._outbox_verdict(v_message, p_take, p_owner),
                        case when strpos(v_message.channel, ':') > 0 then 'not_owner' end);
    seen := fencepost._outbox_seen(v_message);
    if refusal is null then
      perform fencepost._outbox_apply(v_message, p_outcome, p_error, p_delay, p_result);
    end if;
    return;
  end if;
  select * into v_settled from fencepost.outbox_settled s where s.id = p_id;
  refusal := case when found then 'already_finished' else 'not_found' end;
  seen := case when found then jsonb_build_object('state', v_settled.state, 'take', v_settled.take,
                                                  'settled_at', v_settled.settled_at) end;
end $$;

-- Settle one delivery. Raises stale_attempt, not_owner, already_finished or not_found. In a hold the owner is null.
create or replace function fencepost.outbox_settle(
  p_id bigint, p_take bigint, p_owner text, p_outcome text,
  p_error text default null, p_delay interval default null, p_result jsonb default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v record;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_token('take', p_take);
  perform fencepost._outbox_check_outcome(p_outcome, p_error, p_result);
  perform fencepost._check_wait('delay', coalesce(p_delay, interval '0'), interval '10 years');
  select * into v from fencepost._outbox_settle_try(p_id, p_take, p_owner, p_outcome, p_error, p_delay, p_result);
  if v.refusal is not null then
    perform fencepost._refuse(v.refusal, 'outbox', p_id::text,
                              jsonb_build_object('take', p_take, 'owner', p_owner, 'outcome', p_outcome), v.seen);
  end if;
end $$;

-- Settle many with one outcome each, in order of id; answers for each.
create or replace function fencepost.outbox_settle_many(
  p_ids bigint[], p_takes bigint[], p_owner text, p_outcomes text[],
  p_errors text[] default null, p_delays interval[] default null, p_results jsonb[] default null
) returns table (id bigint, refusal text)
language plpgsql volatile security definer
set search_path = pg_catalog, fencepost, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_asked record;
  v       record;
  v_sent  bigint[];
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('takes', p_takes);
  perform fencepost._check_lengths('takes', cardinality(p_ids), cardinality(p_takes));
  perform fencepost._check_lengths('outcomes', cardinality(p_ids), cardinality(p_outcomes));
  perform fencepost._check_lengths('errors', cardinality(p_ids), coalesce(cardinality(p_errors), cardinality(p_ids)));
  perform fencepost._check_lengths('delays', cardinality(p_ids), coalesce(cardinality(p_delays), cardinality(p_ids)));
  perform fencepost._check_lengths('results', cardinality(p_ids), coalesce(cardinality(p_results), cardinality(p_ids)));
  perform fencepost._outbox_check_outcome(a.outcome, a.error, a.result)
    from unnest(p_outcomes, p_errors, p_results) a (outcome, error, result);
  perform fencepost._check_wait('delays', coalesce(d, interval '0'), interval '10 years') from unnest(p_delays) d;
  -- All rows first, in order of id: the writes below go by kind, and could deadlock with a renewal of the
  -- same batch.
  perform 1 from fencepost.outbox o where o.id = any (p_ids) order by o.id for update;
  -- The common case, plain messages that were sent, in one statement.
  with asked as materialized (
    select a.id, a.take, a.result from unnest(p_ids, p_takes, p_outcomes, p_results) a (id, take, outcome, result)
    where a.outcome = 'sent' order by a.id
  ), gone as (
    delete from fencepost.outbox o using asked a
    where o.id = a.id and o.take = a.take and o.owner is not distinct from p_owner and o.key is null
      and strpos(o.channel, ':') = 0
      and (p_owner is not null or o.state in ('queued', 'failed'))
    returning o.*, a.result
  ), settled as (
    insert into fencepost.outbox_settled (id, channel, key, payload, headers, state, created_at, settled_at, attempts, take,
                                          owner, result, last_error)
    select g.id, g.channel, g.key, g.payload, g.headers, 'sent', g.created_at, fencepost.clock(),
           g.attempts + case when g.owner is null then 1 else 0 end, g.take, g.owner, g.result, null
    from gone g
    returning id
  )
  select coalesce(array_agg(s.id), '{}') into v_sent from settled s;
  return query select s, null::text from unnest(v_sent) s;
  if cardinality(v_sent) = cardinality(p_ids) then
    return;
  end if;

  for v_asked in
    select a.* from unnest(p_ids, p_takes, p_outcomes, p_errors, p_delays, p_results)
      a (id, take, outcome, error, delay, result)
    where a.id <> all (v_sent) order by a.id
  loop
    select * into v from fencepost._outbox_settle_try(v_asked.id, v_asked.take, p_owner, v_asked.outcome, v_asked.error,
                                                      v_asked.delay, v_asked.result);
    if v.refusal is not null then
      perform fencepost._refusal_note(v.refusal, 'outbox', v_asked.id::text, p_owner,
        jsonb_build_object('take', v_asked.take, 'owner', p_owner, 'outcome', v_asked.outcome), v.seen);
    end if;
    return query select v_asked.id, v.refusal;
  end loop;
end $$;

-- Deliveries whose taker stopped responding: p_outcome says what that means for this channel. queued: send
-- again (at least once). unknown: reconcile first. The take grows, so that a late settlement of the old taker
-- is refused. Served by outbox_taken.
create or replace function fencepost.outbox_expire(p_channel text, p_outcome text, p_limit integer, p_grace interval default '0')
returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._outbox_check_channel(p_channel);
  return query select * from fencepost._outbox_expire(p_channel, p_outcome, p_limit, p_grace);
end $$;

create or replace function fencepost._outbox_expire(p_channel text, p_outcome text, p_limit integer, p_grace interval)
returns setof bigint
language plpgsql volatile
as $$
declare
  v_now timestamptz := fencepost.clock();
  v     fencepost.outbox;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_word('outcome', p_outcome, array['queued', 'unknown']);
  perform fencepost._check_limit(p_limit);
  perform fencepost._check_wait('grace', p_grace, interval '1 day');
  for v in select * from fencepost.outbox o
           where o.channel = p_channel and o.state = 'sending' and o.taken_until <= v_now - p_grace
           order by o.taken_until limit p_limit for update skip locked loop
    update fencepost.outbox o set state = p_outcome, take = o.take + 1, owner = null, taken_until = null, not_before = v_now,
           last_error = 'the taker went silent'
    where o.id = v.id;
    perform fencepost._event(v_now, 'outbox', v.id::text, 'expired', v.owner, v.take, jsonb_build_object('to', p_outcome));
    return next v.id;
  end loop;
end $$;

-- An operator decides about a message that waits for one: guarded by the state that the operator saw.
create or replace function fencepost.outbox_resolve(
  p_id bigint, p_expected text, p_outcome text, p_actor text, p_note text, p_result jsonb default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_message fencepost.outbox;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._outbox_check_outcome(p_outcome, p_note, p_result);
  perform fencepost._check_word('expected', p_expected, array['queued', 'failed', 'unknown', 'parked']);
  select * into v_message from fencepost.outbox o where o.id = p_id for update;
  if not found then
    perform fencepost._refuse(
      case when exists (select 1 from fencepost.outbox_settled s where s.id = p_id) then 'already_finished' else 'not_found' end,
      'outbox', p_id::text, jsonb_build_object('expected', p_expected, 'outcome', p_outcome), null);
  end if;
  if strpos(v_message.channel, ':') > 0 then
    raise exception 'id % is a message of %: decide about it there, where what belongs to it is kept.', p_id,
      split_part(v_message.channel, ':', 1) using errcode = 'ZF100', detail = '{"field": "id"}';
  end if;
  if v_message.state <> p_expected then
    perform fencepost._refuse('mismatch', 'outbox', p_id::text,
      jsonb_build_object('expected', p_expected, 'outcome', p_outcome), fencepost._outbox_seen(v_message));
  end if;
  -- The take grows: a reconciler that still works on it is refused.
  update fencepost.outbox o set take = o.take + 1 where o.id = p_id returning * into v_message;
  perform fencepost._event(fencepost.clock(), 'outbox', p_id::text, 'resolved', p_actor, v_message.take,
    jsonb_build_object('from', p_expected, 'to', p_outcome, 'note', p_note));
  perform fencepost._outbox_apply(v_message, p_outcome, p_note, null, p_result);
end $$;

-- Delete settled messages older than p_keep, at most p_limit. Served by outbox_settled_by_time.
create or replace function fencepost.outbox_prune(p_keep interval, p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_before timestamptz := fencepost._prune_before(p_keep, p_limit);
  v_count  bigint;
begin
  delete from fencepost.outbox_settled s where s.ctid = any (array(
    select o.ctid from fencepost.outbox_settled o where o.settled_at < v_before
    order by o.settled_at limit p_limit for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end $$;
