-- Cancelling and replacing an order that the broker has.
--
-- The answer to a cancel or a replacement proves nothing: it may be lost, and a broker that accepts it may still fill the order
-- first. What the broker reports of the order afterwards proves it. So a change is sent and then asked about:
--
--   queued    waits to be sent, or until the broker has the order
--   sending   taken by one worker; its request is stamped and may have left
--   unknown   a request may have taken effect: the broker is asked, nothing is sent
--   done      the broker reports the order as cancelled, or its replacement
--   refused   the order ended in another way, or the broker refused and no request can take effect any more
--
-- A request names the broker's own id of the order. A broker cancels or replaces an order at most once, so a request may be
-- repeated; but one that is still on its way may take effect for as long as the order is open. Therefore a change of an open order
-- is refused only when none of its requests is unaccounted for (open_since, as with orders).
--
-- Locks: the message, the row of fill tracking, the order, the change, the broker's row, in this order; each kind in order of id. A
-- take locks the broker's row first, waits for no other row, and skips what is locked.
-- Served by orders_change_due, orders_change_open, orders_fill_tracking_pkey and the primary keys.

-- Declare what a broker's adapter can do.
create or replace function fencepost.orders_broker_abilities(p_broker text, p_can_cancel boolean, p_can_replace boolean)
returns void
language sql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  update fencepost.orders_broker b set can_cancel = p_can_cancel, can_replace = p_can_replace
  where b.broker = p_broker and (b.can_cancel, b.can_replace) is distinct from (p_can_cancel, p_can_replace)
$$;

-- A line in the order's audit: the order keeps its state.
create or replace function fencepost._orders_change_audit(
  p_change fencepost.orders_change, p_from text, p_actor text, p_detail text
) returns void
language sql volatile
as $$
  select fencepost._orders_audit(fencepost.clock(), r, s.status, s.status, p_change.last_error, p_actor, p_change.take,
    left(format('%s %s: %s -> %s%s', p_change.kind, p_change.change_id, coalesce(p_from, 'new'), p_change.state,
                coalesce('. ' || p_detail, '')), 1000))
  from fencepost.orders_order r,
    lateral (select coalesce(r.final_status, (select o.state from fencepost.outbox o where o.id = r.id)) as status) s
  where r.id = p_change.order_id
$$;

create or replace function fencepost._orders_change_end(
  p_change fencepost.orders_change, p_state text, p_code text, p_detail text, p_actor text
) returns void
language plpgsql volatile
as $$
declare
  v_change fencepost.orders_change;
begin
  update fencepost.orders_change c
  set state = p_state, open_since = null, last_error = p_code, detail = left(p_detail, 1000), settled_at = fencepost.clock()
  where c.change_id = p_change.change_id returning * into v_change;
  perform fencepost._orders_change_audit(v_change, p_change.state, p_actor, p_detail);
end $$;

-- Cancel one order wherever it is: here while nothing has left, else at the broker. Returns dead, requested, replay (the same
-- change was requested before), mismatch (its key is that of a replacement), waiting (another cancel is under way), over (it has
-- ended) or cannot.
create or replace function fencepost._orders_cancel_one(p_id bigint, p_key text, p_actor text, p_reason text) returns text
language plpgsql volatile
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_message fencepost.outbox;
  v_order   fencepost.orders_order;
  v_change  fencepost.orders_change;
begin
  select * into v_message from fencepost.outbox o where o.id = p_id for update;
  perform 1 from fencepost.orders_fill_tracking f where f.order_id = p_id for update;
  select * into strict v_order from fencepost.orders_order r where r.id = p_id for update;
  select * into v_change from fencepost.orders_change c where c.order_id = p_id and c.change_key = p_key;
  if found then
    return case when v_change.kind = 'cancel' then 'replay' else 'mismatch' end;
  elsif v_order.final_status is null and v_order.open_since is null and v_message.state in ('queued', 'failed') then
    v_message.attempts := greatest(0, v_message.attempts - 1);
    perform fencepost._orders_apply(v_message, 'dead', 'unproved', 'CANCELLED', p_reason, null, null, p_actor);
    return 'dead';
  elsif v_order.final_status = 'dead' or v_order.final_status = 'sent' and not exists (
          select 1 from fencepost.orders_fill_tracking f where f.order_id = p_id) then
    return 'over';
  elsif not exists (select 1 from fencepost.orders_broker b where b.broker = v_order.broker and b.can_cancel) then
    return 'cannot';
  elsif exists (select 1 from fencepost.orders_change c where c.order_id = p_id and c.kind = 'cancel' and c.settled_at is null) then
    return 'waiting';
  end if;
  -- A replacement that has not left is not wanted any more.
  for v_change in select * from fencepost.orders_change c
                  where c.order_id = p_id and c.kind = 'replace' and c.settled_at is null and c.state = 'queued'
                    and c.open_since is null for update loop
    perform fencepost._orders_change_end(v_change, 'refused', 'CANCELLED', 'the order is cancelled instead', p_actor);
  end loop;
  insert into fencepost.orders_change (order_id, broker, kind, change_key, actor, reason, created_at, due_at)
  values (p_id, v_order.broker, 'cancel', p_key, p_actor, p_reason, v_now, v_now) returning * into v_change;
  perform fencepost._orders_change_audit(v_change, null, p_actor, p_reason);
  perform fencepost._wake('orders-change:' || v_order.broker);
  return 'requested';
end $$;

-- Cancel an order at the broker, or here while nothing has left; returns dead, requested or replay. Raises not_found,
-- already_finished, in_flight while another cancel is under way, mismatch for the key of a replacement, and ZF100 when the
-- adapter cannot.
create or replace function fencepost.orders_cancel_at_broker(p_id bigint, p_key text, p_actor text, p_reason text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_attempted jsonb := jsonb_build_object('cancel', p_reason, 'at_broker', true);
  v_said      text;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('key', p_key, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  if not exists (select 1 from fencepost.orders_order r where r.id = p_id) then
    perform fencepost._refuse('not_found', 'order', coalesce(p_id::text, 'null'), v_attempted, null);
  end if;
  v_said := fencepost._orders_cancel_one(p_id, p_key, p_actor, p_reason);
  if v_said = 'over' then
    perform fencepost._refuse('already_finished', 'order', p_id::text, v_attempted, (
      select jsonb_build_object('status', r.final_status, 'result', (
        select x.status from fencepost.orders_result x where x.order_id = r.id)) from fencepost.orders_order r where r.id = p_id));
  elsif v_said = 'waiting' then
    perform fencepost._refuse('in_flight', 'order', p_id::text, v_attempted, null);
  elsif v_said = 'mismatch' then
    perform fencepost._refuse('mismatch', 'order', p_id::text, v_attempted, '{"kind": "replace"}');
  elsif v_said = 'cannot' then
    raise exception 'the adapter of this broker cannot cancel an order that was sent: cancel it at the broker.'
      using errcode = 'ZF100', detail = '{"field": "broker"}';
  end if;
  return v_said;
end $$;

-- Cancel everything of a broker, or of one account, that has not ended: for the kill switch. Returns how many ended here, how
-- many cancels the broker is asked for, and how many orders are left because the adapter cannot cancel.
create or replace function fencepost.orders_cancel_open(p_broker text, p_account text, p_key text, p_actor text, p_reason text)
returns table (dead bigint, requested bigint, left_open bigint)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_ids bigint[];
  v_id  bigint;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('key', p_key, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._orders_check_switch(p_broker, p_account, jsonb_build_object('cancel_open', p_reason));
  dead := 0; requested := 0; left_open := 0;
  v_ids := array(
    select r.id from fencepost.orders_order r
    where r.broker = p_broker and r.final_status is null and (p_account is null or r.account = p_account)
    union
    select r.id from fencepost.orders_fill_tracking f join fencepost.orders_order r on r.id = f.order_id
    where f.broker = p_broker and (p_account is null or r.account = p_account));
  -- All of them first, kind by kind: a settlement of many takes them in this order too.
  perform 1 from fencepost.outbox o where o.id = any (v_ids) order by o.id for update;
  perform 1 from fencepost.orders_fill_tracking f where f.order_id = any (v_ids) order by f.order_id for update;
  perform 1 from fencepost.orders_order r where r.id = any (v_ids) order by r.id for update;
  foreach v_id in array v_ids loop
    case fencepost._orders_cancel_one(v_id, p_key, p_actor, p_reason)
      when 'dead' then dead := dead + 1;
      when 'requested' then requested := requested + 1;
      when 'cannot' then left_open := left_open + 1;
      else null;
    end case;
  end loop;
  perform fencepost._event(fencepost.clock(), 'broker', p_broker, 'open orders cancelled', p_actor, null,
    jsonb_build_object('account', p_account, 'reason', p_reason, 'dead', dead, 'requested', requested, 'left_open', left_open));
  return next;
end $$;

-- Replace an order that the broker has: p_changes overrides fields of its document, but not its type. Returns the change and
-- accepted or replay. Raises not_found; already_finished; in_flight while the order is not at the broker yet, or another change of
-- it is under way; mismatch for a key that was used with other changes; ZF100 when the adapter cannot, or the changes make no
-- replacement. The new terms are held to the limits of the account, and only what they add counts to its day.
create or replace function fencepost.orders_replace(p_id bigint, p_key text, p_changes jsonb, p_actor text, p_reason text)
returns table (change_id bigint, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_attempted jsonb := jsonb_build_object('replace', p_changes);
  v_now       timestamptz := fencepost.clock();
  v_order     fencepost.orders_order;
  v_change    fencepost.orders_change;
  v_before    jsonb;
  v_terms     jsonb;
  v_over      jsonb;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('key', p_key, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._check_json('changes', p_changes, 4096);
  select * into v_order from fencepost.orders_order r where r.id = p_id for update;
  if not found then
    perform fencepost._refuse('not_found', 'order', coalesce(p_id::text, 'null'), v_attempted, null);
  end if;
  select * into v_change from fencepost.orders_change c where c.order_id = p_id and c.change_key = p_key;
  if found then
    if v_change.changes is distinct from p_changes then
      perform fencepost._refuse('mismatch', 'order', p_id::text, v_attempted, jsonb_build_object('changes', v_change.changes));
    end if;
    return query select v_change.change_id, 'replay';
    return;
  end if;
  if v_order.final_status = 'dead' or v_order.final_status = 'sent' and not exists (
       select 1 from fencepost.orders_fill_tracking f where f.order_id = p_id) then
    perform fencepost._refuse('already_finished', 'order', p_id::text, v_attempted,
                              jsonb_build_object('status', v_order.final_status));
  elsif not exists (select 1 from fencepost.orders_broker b where b.broker = v_order.broker and b.can_replace) then
    raise exception 'the adapter of this broker cannot replace an order: cancel it and place another.'
      using errcode = 'ZF100', detail = '{"field": "broker"}';
  elsif v_order.final_status is null
     or exists (select 1 from fencepost.orders_change c where c.order_id = p_id and c.settled_at is null) then
    perform fencepost._refuse('in_flight', 'order', p_id::text, v_attempted, jsonb_build_object('status', v_order.final_status));
  end if;
  v_before := coalesce(v_order.terms, v_order.request_json);
  if p_changes is null or jsonb_typeof(p_changes) <> 'object' or p_changes = '{}'
     or exists (select 1 from jsonb_object_keys(p_changes) k
                where k not in ('qty', 'limit_price', 'stop_price', 'time_in_force', 'good_until')
                   or k in ('limit_price', 'stop_price') and not v_before ? k) then
    raise exception 'changes must have some of qty, time_in_force, good_until and the prices that the order has.'
      using errcode = 'ZF100', detail = '{"field": "changes"}';
  end if;
  v_terms := v_before || p_changes;
  v_over := fencepost._orders_over_limit(v_order.broker, v_order.account, v_order.symbol, v_terms, v_before);
  if v_over is not null then
    raise exception 'the replacement passes a limit of its account: %', v_over
      using errcode = 'ZF100', detail = jsonb_build_object('field', v_over ->> 'limit');
  end if;
  insert into fencepost.orders_change (order_id, broker, kind, change_key, changes, terms, client_id, actor, reason, created_at, due_at)
  values (p_id, v_order.broker, 'replace', p_key, p_changes, v_terms, 'replace-of-' || p_id || '-' || gen_random_uuid(), p_actor,
          p_reason, v_now, v_now)
  returning * into v_change;
  perform fencepost._orders_change_audit(v_change, null, p_actor, p_reason);
  perform fencepost._wake('orders-change:' || v_order.broker);
  return query select v_change.change_id, 'accepted';
end $$;

-- Changes to send or to ask about, as many as the throttle allows. Cancels pass the kill switch and the breaker, as questions do;
-- a replacement waits for them, and for a cancel of its order. A change of an order that the broker does not have yet waits.
create or replace function fencepost.orders_change_take(p_broker text, p_owner text, p_lease interval, p_limit integer)
returns table (id bigint, take bigint, kind text, state text, order_id bigint, request jsonb, terms jsonb, order_client_id text,
               client_id text, broker_order_id text, account text, requests integer, asks integer, created_at timestamptz,
               order_created_at timestamptz, stamped_at timestamptz, open_since timestamptz, last_error text,
               taken_at timestamptz, taken_until timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := fencepost.clock();
  v_allowed integer;
  v_halted  boolean;
  v_due     fencepost.orders_change;
  v_change  fencepost.orders_change;
  v_order   fencepost.orders_order;
  v_count   integer := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  perform fencepost._check_limit(p_limit);
  -- Checked first without a lock: all workers share the broker's row, and most of the time nothing is due.
  if not exists (select 1 from fencepost.orders_change c where c.broker = p_broker and c.settled_at is null and c.due_at <= v_now) then
    return;
  end if;
  v_allowed := fencepost._orders_allowance(p_broker, p_limit, true);
  v_now := fencepost.clock();
  select b.halted_at is not null or b.paused_until > v_now or b.opened_until is not null into v_halted
  from fencepost.orders_broker b where b.broker = p_broker;
  for v_due in select * from fencepost.orders_change c
               where c.broker = p_broker and c.settled_at is null and c.due_at <= v_now
               order by c.due_at, c.change_id limit v_allowed for update skip locked loop
    select * into strict v_order from fencepost.orders_order r where r.id = v_due.order_id;
    if v_order.final_status is distinct from 'sent'
       or v_due.kind = 'replace' and v_due.state = 'queued' and (
            coalesce(v_halted, false)
            or exists (select 1 from fencepost.orders_halt h where h.broker = p_broker and h.account = v_order.account)
            or exists (select 1 from fencepost.orders_change c
                       where c.order_id = v_due.order_id and c.kind = 'cancel' and c.settled_at is null)) then
      update fencepost.orders_change c set due_at = v_now + interval '1 second' where c.change_id = v_due.change_id;
      continue;
    end if;
    update fencepost.orders_change c
    set take = c.take + 1, due_at = v_now + p_lease,
        state = case when c.state = 'queued' then 'sending' else 'unknown' end,
        requests = c.requests + case when c.state = 'queued' then 1 else 0 end,
        asks = c.asks + case when c.state = 'queued' then 0 else 1 end,
        stamped_at = case when c.state = 'queued' then v_now else c.stamped_at end,
        open_since = case when c.state = 'queued' then coalesce(c.open_since, v_now) else c.open_since end,
        broker_order_id = v_order.broker_order_id
    where c.change_id = v_due.change_id returning * into v_change;
    if v_due.state <> v_change.state then
      perform fencepost._orders_change_audit(v_change, v_due.state, p_owner,
        case when v_due.state = 'sending' then 'the sender went silent' end);
    end if;
    v_count := v_count + 1;
    return query select v_change.change_id, v_change.take, v_change.kind, v_change.state, v_order.id,
      coalesce(v_order.terms, v_order.request_json), v_change.terms, coalesce(v_order.client_id, v_order.idempotency_key),
      v_change.client_id, v_order.broker_order_id, v_order.account, v_change.requests, v_change.asks, v_change.created_at,
      v_order.created_at, coalesce(v_change.stamped_at, v_change.created_at), v_change.open_since, v_change.last_error, v_now,
      v_change.due_at;
  end loop;
  perform fencepost._orders_spend(p_broker, v_count, true);
end $$;

-- Store the report that settles a change, and tell what it says: the order's end, or its replacement.
create or replace function fencepost._orders_change_hear(p_order bigint, p_result jsonb, p_owner text, p_take bigint) returns void
language plpgsql volatile
as $$
declare
  v_now    timestamptz := fencepost.clock();
  v_is_new boolean := fencepost._orders_hear(p_order, p_result, p_owner, p_take, v_now);
begin
  if p_result -> 'open' = 'true' then
    -- A follow-up of the order before its replacement is refused. Where its row is gone by now, the takes of the new row must not
    -- be those of the old one, which began at 0.
    insert into fencepost.orders_fill_tracking as f (order_id, broker, ask_at, take)
    select r.id, r.broker, v_now + fencepost._orders_fill_first(), (extract(epoch from v_now) * 1000)::bigint
    from fencepost.orders_order r where r.id = p_order
    on conflict (order_id) do update set take = f.take + 1, ask_at = excluded.ask_at;
    if v_is_new then
      perform fencepost._orders_tell_transition(p_order, 'sent', 'sent', null, v_now, null);
    end if;
  else
    delete from fencepost.orders_fill_tracking f where f.order_id = p_order;
    -- One that is not followed any more and says nothing new has been told as closed.
    if found or v_is_new then
      perform fencepost._orders_tell_transition(p_order, 'sent', 'sent', null, v_now, true);
    end if;
  end if;
end $$;

-- Settle changes; returns for each its new state, or why it was refused. The outcome is one of
--   asking     the request was made, or nothing is proved yet: ask (again) after the delay
--   again      send it again after the delay
--   replaced   a cancel met an order that was replaced: it goes on with the replacement, if it is ours
--   done, refused
-- The fate says what is proved about its requests, as with orders: unproved, not_this, none.
create or replace function fencepost.orders_change_settle(
  p_broker text, p_owner text, p_ids bigint[], p_takes bigint[], p_outcomes text[], p_fates text[], p_codes text[],
  p_details text[], p_delays interval[], p_results jsonb[], p_replaced jsonb[], p_health text[]
) returns table (id bigint, state text, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz;
  v_orders  bigint[];
  v_asked   record;
  v_change  fencepost.orders_change;
  v_after   fencepost.orders_change;
  v_order   fencepost.orders_order;
  v_outcome text;
  v_open    timestamptz;
  v_doubt   boolean;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('takes', p_takes);
  perform fencepost._check_lengths(a.field, cardinality(p_ids), a.given)
    from (values ('takes', cardinality(p_takes)), ('outcomes', cardinality(p_outcomes)), ('fates', cardinality(p_fates)),
                 ('codes', cardinality(p_codes)), ('details', cardinality(p_details)), ('delays', cardinality(p_delays)),
                 ('results', cardinality(p_results)), ('replaced', cardinality(p_replaced)), ('health', cardinality(p_health)))
      a (field, given);
  perform fencepost._check_word('outcomes', o, array['asking', 'again', 'replaced', 'done', 'refused']) from unnest(p_outcomes) o;
  perform fencepost._check_word('fates', f, array['unproved', 'not_this', 'none']) from unnest(p_fates) f;
  perform fencepost._check_wait('delays', coalesce(d, interval '0'), interval '10 years') from unnest(p_delays) d;
  perform fencepost._check_documents('results', p_results, 65536);
  perform fencepost._check_documents('replaced', p_replaced, 65536);
  if exists (select 1 from unnest(p_outcomes, p_results) a (outcome, result) where a.outcome = 'done' and a.result is null) then
    raise exception 'results: a change that is done has one.' using errcode = 'ZF100', detail = '{"field": "results"}';
  end if;
  v_orders := array(select distinct c.order_id from fencepost.orders_change c where c.change_id = any (p_ids));
  perform 1 from fencepost.orders_fill_tracking f where f.order_id = any (v_orders) order by f.order_id for update;
  perform 1 from fencepost.orders_order r where r.id = any (v_orders) order by r.id for update;
  perform 1 from fencepost.orders_change c where c.change_id = any (p_ids) order by c.change_id for update;
  v_now := fencepost.clock();
  for v_asked in
    select a.* from unnest(p_ids, p_takes, p_outcomes, p_fates, p_codes, p_details, p_delays, p_results, p_replaced)
      a (id, take, outcome, fate, code, detail, delay, result, replaced) order by a.id
  loop
    select * into v_change from fencepost.orders_change c where c.change_id = v_asked.id and c.broker = p_broker;
    id := v_asked.id;
    state := null;
    refusal := case when not found then 'not_found' when v_change.take <> v_asked.take then 'stale_attempt'
                    when v_change.settled_at is not null then 'already_finished' end;
    if refusal is not null then
      perform fencepost._refusal_note(refusal, 'order', coalesce(v_change.order_id, v_asked.id)::text, p_owner,
        jsonb_build_object('change', v_asked.id, 'take', v_asked.take, 'outcome', v_asked.outcome), to_jsonb(v_change));
      return next;
      continue;
    end if;
    select * into strict v_order from fencepost.orders_order r where r.id = v_change.order_id;
    v_outcome := v_asked.outcome;
    v_open := case when v_asked.fate = 'none' then null
                   when v_asked.fate = 'not_this' and v_change.open_since = v_change.stamped_at then null
                   else v_change.open_since end;
    -- Whether the end that a cancel was told of is that of an order that our own replacement may have replaced.
    v_doubt := v_change.kind = 'cancel' and (
      v_order.broker_order_id is distinct from v_change.broker_order_id
      or exists (select 1 from fencepost.orders_change c
                 where c.order_id = v_change.order_id and c.kind = 'replace' and c.settled_at is null));
    if v_outcome = 'replaced' then
      v_outcome := case when v_doubt then 'again' else 'refused' end;
      v_open := null;
    elsif v_outcome in ('done', 'refused') and v_doubt then
      -- Some brokers show a replaced order as cancelled: first it is settled whether it was replaced.
      v_outcome := 'asking';
      v_asked.delay := greatest(v_asked.delay, interval '1 second');
    elsif v_outcome = 'refused' and v_open is not null
       or v_outcome = 'again' and v_change.kind = 'replace' and exists (
            select 1 from fencepost.orders_change c where c.order_id = v_change.order_id and c.kind = 'cancel' and c.settled_at is null)
    then
      -- An earlier request may still take effect; and nothing is replaced that is to be cancelled.
      v_outcome := 'asking';
    end if;
    if v_outcome in ('done', 'refused') then
      if v_outcome = 'done' and v_change.kind = 'replace' then
        update fencepost.orders_order r
        set client_id = v_change.client_id, terms = v_change.terms, broker_order_id = v_asked.result ->> 'broker_order_id'
        where r.id = v_order.id;
        update fencepost.orders_change c set replaced_result = v_asked.replaced where c.change_id = v_asked.id;
        perform fencepost._orders_tell_replaced(v_order.id, v_now);
      end if;
      if v_asked.result is not null then
        perform fencepost._orders_change_hear(v_order.id, v_asked.result, p_owner, v_asked.take);
      end if;
      perform fencepost._orders_change_end(v_change, v_outcome, v_asked.code, v_asked.detail, p_owner);
      state := v_outcome;
    else
      update fencepost.orders_change c
      set state = case when v_outcome = 'again' then 'queued' else 'unknown' end, open_since = v_open, last_error = v_asked.code,
          detail = left(v_asked.detail, 1000), due_at = v_now + coalesce(v_asked.delay, interval '0')
      where c.change_id = v_asked.id returning * into v_after;
      if v_after.state <> v_change.state then
        perform fencepost._orders_change_audit(v_after, v_change.state, p_owner, v_asked.detail);
      end if;
      state := v_after.state;
    end if;
    return next;
  end loop;
  perform fencepost._orders_note_health(p_broker, p_health, p_delays);
end $$;

-- End the changes of orders that never came to the broker: their order is dead, or waits here with nothing on its way, where a
-- cancel ends it. Returns how many.
create or replace function fencepost.orders_change_sweep(p_limit integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_change  fencepost.orders_change;
  v_message fencepost.outbox;
  v_order   fencepost.orders_order;
  v_count   bigint := 0;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_limit(p_limit);
  for v_change in
    select c.* from fencepost.orders_broker b
      join fencepost.orders_change c on c.broker = b.broker and c.settled_at is null
      join fencepost.orders_order r on r.id = c.order_id
    where r.final_status = 'dead' or r.final_status is null and r.open_since is null
    order by c.order_id, c.change_id limit p_limit
  loop
    select * into v_message from fencepost.outbox o where o.id = v_change.order_id for update;
    select * into strict v_order from fencepost.orders_order r where r.id = v_change.order_id for update;
    select * into v_change from fencepost.orders_change c where c.change_id = v_change.change_id for update;
    if v_order.final_status is null and v_order.open_since is null and v_message.state in ('queued', 'failed') then
      v_message.attempts := greatest(0, v_message.attempts - 1);
      perform fencepost._orders_apply(v_message, 'dead', 'unproved', 'CANCELLED', v_change.reason, null, null, v_change.actor);
      v_order.final_status := 'dead';
    end if;
    if v_order.final_status = 'dead' and v_change.settled_at is null then
      perform fencepost._orders_change_end(v_change, case when v_change.kind = 'cancel' then 'done' else 'refused' end, null,
                                           'the order is dead: the broker does not have it', null);
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end $$;

-- After a restore from a backup: what is queued may have been sent since. Everything is asked about first.
create or replace function fencepost._orders_change_recover(p_broker text) returns void
language sql volatile
as $$
  update fencepost.orders_change c
  set state = 'unknown', take = c.take + 1, due_at = fencepost.clock(), stamped_at = fencepost.clock(),
      open_since = coalesce(c.open_since, fencepost.clock())
  where c.broker = p_broker and c.settled_at is null
$$;

-- The changes of orders, newest last.
create or replace view fencepost.orders_changes as
  select c.change_id, c.order_id, c.broker, c.kind, c.change_key, c.changes, c.client_id, c.actor, c.reason, c.state, c.created_at,
         c.due_at, c.requests, c.asks, c.open_since, c.last_error, c.detail, c.settled_at, c.replaced_result
  from fencepost.orders_change c;
