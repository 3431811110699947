-- The throttle of a broker: a token bucket whose rate is halved on 429 and rises slowly (AIMD), a circuit breaker on failures,
-- and the kill switch. One row per broker, so all workers share it; its lock is held while a batch is taken.

-- Declare a broker's limits. What was learned since (a lowered rate, an open breaker, a kill switch) stays.
create or replace function fencepost.orders_broker_declare(
  p_broker text, p_rate_max double precision, p_burst double precision, p_failures_max integer, p_open_for interval,
  p_rate_min double precision default null, p_rate_rise double precision default null, p_can_ask boolean default null
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_min  double precision := coalesce(p_rate_min, p_rate_max / 100);
  v_rise double precision := coalesce(p_rate_rise, p_rate_max / 60);
begin
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_duration('open_for', p_open_for, interval '1 day');
  if p_rate_max is null or not (p_rate_max > 0 and p_rate_max <= 1e9) or not (v_min > 0 and v_min <= p_rate_max) or not (v_rise > 0) then
    raise exception 'rate must be more than 0, and its minimum not above it.' using errcode = 'ZF100', detail = '{"field": "rate"}';
  end if;
  if p_burst is null or not (p_burst >= 1 and p_burst <= 1e9) or p_failures_max is null or p_failures_max < 1 then
    raise exception 'burst and failures_max must be 1 or more.' using errcode = 'ZF100', detail = '{"field": "burst"}';
  end if;
  insert into fencepost.orders_broker as b (broker, rate_max, rate_min, rate_rise, burst, failures_max, open_for, rate, tokens,
                                            refilled_at, can_ask)
  values (p_broker, p_rate_max, v_min, v_rise, p_burst, p_failures_max, p_open_for, p_rate_max, p_burst, fencepost.clock(),
          coalesce(p_can_ask, false))
  on conflict (broker) do update
  set rate_max = excluded.rate_max, rate_min = excluded.rate_min, rate_rise = excluded.rate_rise, burst = excluded.burst,
      failures_max = excluded.failures_max, open_for = excluded.open_for, can_ask = coalesce(p_can_ask, b.can_ask),
      -- A lowered rate stays lowered; one that was at its old maximum follows the new one.
      rate = case when b.rate >= b.rate_max then excluded.rate_max
                  else greatest(excluded.rate_min, least(b.rate, excluded.rate_max)) end
  where (b.rate_max, b.rate_min, b.rate_rise, b.burst, b.failures_max, b.open_for, b.can_ask)
    is distinct from (excluded.rate_max, excluded.rate_min, excluded.rate_rise, excluded.burst, excluded.failures_max,
                      excluded.open_for, coalesce(p_can_ask, b.can_ask));
end $$;

-- How many requests may be made now; locks the broker's row until the end of the transaction. Queries (p_asking) pass the kill
-- switch, the breaker and a pause of sending: they place nothing, and their answers close the breaker. They have a pause of their
-- own.
create or replace function fencepost._orders_allowance(p_broker text, p_limit integer, p_asking boolean) returns integer
language plpgsql volatile
as $$
declare
  v_broker fencepost.orders_broker;
  v_now    timestamptz;
  v_rate   double precision;
  v_tokens double precision;
begin
  select * into v_broker from fencepost.orders_broker b where b.broker = p_broker for no key update;
  if not found then
    perform fencepost._refuse('not_found', 'broker', p_broker, '{}', null);
  end if;
  v_now := fencepost.clock();
  if p_asking and v_broker.ask_paused_until > v_now
     or not p_asking and (v_broker.paused_until > v_now or v_broker.halted_at is not null or v_broker.opened_until > v_now
                          -- Half open: where a query can probe the broker, no order does.
                          or v_broker.opened_until is not null and v_broker.can_ask) then
    return 0;
  end if;
  v_rate := least(v_broker.rate_max, v_broker.rate
              + v_broker.rate_rise * greatest(0, extract(epoch from v_now - v_broker.refilled_at)::double precision));
  v_tokens := least(v_broker.burst, v_broker.tokens
                + v_rate * greatest(0, extract(epoch from v_now - v_broker.refilled_at)::double precision));
  update fencepost.orders_broker b set rate = v_rate, tokens = v_tokens, refilled_at = v_now where b.broker = p_broker;
  -- Half open, and the broker cannot be queried: one order probes it, and the next one only when its outcome is known or the
  -- pause is over again.
  return least(p_limit, floor(v_tokens)::integer,
               case when v_broker.opened_until is not null and not p_asking then 1 else p_limit end);
end $$;

-- Record how many of the allowed requests are being made.
create or replace function fencepost._orders_spend(p_broker text, p_count integer, p_asking boolean) returns void
language sql volatile
as $$
  update fencepost.orders_broker b
  set tokens = greatest(0, b.tokens - p_count),
      opened_until = case when b.opened_until is not null and not p_asking then fencepost.clock() + b.open_for
                          else b.opened_until end
  where b.broker = p_broker and p_count > 0
$$;

-- What the answers of one batch say about the broker itself: ok, failed, limited (a request for an order was), ask_limited (a
-- query was: then sending waits too), exhausted (it answered, and its rate limit has nothing left until the delay is over: then
-- everything waits, and the rate stays), or null for nothing. orders_settle handles other values.
create or replace function fencepost._orders_note_health(p_broker text, p_health text[], p_delays interval[]) returns void
language plpgsql volatile
as $$
declare
  v_now     timestamptz := fencepost.clock();
  v_good    integer;
  v_bad     integer;
  v_limited integer;
  v_pause   interval;
  v_silence interval;
  v_reset   interval;
begin
  select max(w.delay) into v_reset from unnest(p_health, p_delays) w (health, delay) where w.health = 'exhausted';
  if v_reset is not null then
    update fencepost.orders_broker b
    set paused_until = greatest(b.paused_until, v_now + v_reset), ask_paused_until = greatest(b.ask_paused_until, v_now + v_reset)
    where b.broker = p_broker;
  end if;
  select count(*) filter (where w.health in ('ok', 'exhausted')), count(*) filter (where w.health = 'failed'),
         count(*) filter (where w.health in ('limited', 'ask_limited')),
         max(coalesce(w.delay, interval '0')) filter (where w.health in ('limited', 'ask_limited')),
         max(coalesce(w.delay, interval '0')) filter (where w.health = 'ask_limited')
  into v_good, v_bad, v_limited, v_pause, v_silence from unnest(p_health, p_delays) w (health, delay);
  if v_limited > 0 then
    update fencepost.orders_broker b
    set paused_until = greatest(b.paused_until, v_now + v_pause),
        ask_paused_until = greatest(b.ask_paused_until, v_now + v_silence), tokens = 0,
        -- One burst of 429 counts once: all requests that were in flight when the rate was lowered still come back refused.
        rate = case when b.lowered_at > v_now - interval '1 second' then b.rate else greatest(b.rate_min, b.rate / 2) end,
        lowered_at = case when b.lowered_at > v_now - interval '1 second' then b.lowered_at else v_now end
    where b.broker = p_broker;
  end if;
  if v_good > 0 then
    -- Checked first: a write for each successful batch would make the row hot for nothing.
    update fencepost.orders_broker b
    set failures = 0, opened_until = null, answered_at = case when b.halted_code is not null then coalesce(b.answered_at, v_now) end
    where b.broker = p_broker
      and (b.failures > 0 or b.opened_until is not null or b.halted_code is not null and b.answered_at is null);
  elsif v_bad > 0 then
    update fencepost.orders_broker b
    set failures = b.failures + v_bad, answered_at = null,
        opened_until = case when b.failures + v_bad >= b.failures_max then v_now + b.open_for else b.opened_until end
    where b.broker = p_broker;
  end if;
end $$;

-- The broker refused the credentials: nothing more is sent until an operator resumes it. Returns whether this answer halted it;
-- requests that come back refused after that were sent before, and only wait. Locks the broker's row, after the messages.
create or replace function fencepost._orders_halt_unauthorized(p_broker text, p_detail text) returns boolean
language plpgsql volatile
as $$
declare
  v_now    timestamptz;
  v_reason text := left('UNAUTHORIZED: the broker refused the credentials. ' || coalesce(p_detail, ''), 1024);
begin
  perform 1 from fencepost.orders_broker b where b.broker = p_broker for no key update;
  v_now := fencepost.clock();
  update fencepost.orders_broker b
  set halted_at = coalesce(b.halted_at, v_now), halted_by = coalesce(b.halted_by, 'fencepost'), halted_code = 'UNAUTHORIZED',
      halted_reason = left(coalesce(b.halted_reason || '; ', '') || v_reason, 2048), probe_at = v_now + b.open_for,
      answered_at = null
  where b.broker = p_broker and b.halted_code is null;
  if not found then
    return false;
  end if;
  perform fencepost._event(v_now, 'broker', p_broker, 'halted', 'fencepost', null,
                           jsonb_build_object('account', null, 'reason', v_reason));
  perform fencepost._orders_tell_switch(p_broker, null, 'broker.halted', 'fencepost', 'UNAUTHORIZED', v_now);
  return true;
end $$;

-- Refuse a broker that is not declared, and an account for which no order was ever sent or waits: a kill switch with a typing
-- error in it would stop nothing, and look as if it did. Served by the primary keys and orders_order_live.
create or replace function fencepost._orders_check_switch(p_broker text, p_account text, p_attempted jsonb) returns void
language plpgsql volatile
as $$
begin
  if not exists (select 1 from fencepost.orders_broker b where b.broker = p_broker) then
    perform fencepost._refuse('not_found', 'broker', p_broker, p_attempted, jsonb_build_object('known', coalesce((
      select jsonb_agg(b.broker order by b.broker) from fencepost.orders_broker b), '[]')));
  end if;
  if p_account is not null
     and not exists (select 1 from fencepost.orders_account a where a.broker = p_broker and a.account = p_account)
     and not exists (select 1 from fencepost.orders_halt h where h.broker = p_broker and h.account = p_account)
     and not exists (select 1 from fencepost.orders_order r
                     where r.broker = p_broker and r.account = p_account and r.final_status is null) then
    perform fencepost._refuse('not_found', 'account', p_account, p_attempted, jsonb_build_object('known', coalesce((
      select jsonb_agg(a.account order by a.account)
      from (select k.account from fencepost.orders_account k where k.broker = p_broker order by k.account limit 20) a), '[]')));
  end if;
end $$;

-- The kill switch. Orders that are being sent cannot be called back; nothing is sent afterwards. Raises not_found for an unknown
-- broker or account.
create or replace function fencepost.orders_halt(p_broker text, p_account text, p_actor text, p_reason text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_is_turned boolean;
begin
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  if p_account is not null then
    perform fencepost._check_text('account', p_account, 128);
  end if;
  perform fencepost._orders_check_switch(p_broker, p_account, jsonb_build_object('halt', p_reason));
  if p_account is not null then
    insert into fencepost.orders_halt (broker, account, halted_at, halted_by, reason)
    values (p_broker, p_account, fencepost.clock(), p_actor, p_reason) on conflict (broker, account) do nothing;
    v_is_turned := found;
  else
    select b.halted_at is null into v_is_turned from fencepost.orders_broker b where b.broker = p_broker for no key update;
    update fencepost.orders_broker b
    set halted_at = coalesce(b.halted_at, fencepost.clock()), halted_by = p_actor, halted_reason = p_reason
    where b.broker = p_broker;
  end if;
  perform fencepost._event(fencepost.clock(), 'broker', p_broker, 'halted', p_actor, null,
                           jsonb_build_object('account', p_account, 'reason', p_reason));
  if v_is_turned then
    perform fencepost._orders_tell_switch(p_broker, p_account, 'broker.halted', p_actor, p_reason, fencepost.clock());
  end if;
end $$;

-- Turn the kill switch off; for a broker also whatever else holds sending back: a pause that it asked for, and the breaker.
-- Waiting orders are due at once, except those that have expired meanwhile. Locks the messages in order of id, then the broker's
-- row.
create or replace function fencepost.orders_resume(p_broker text, p_account text, p_actor text, p_reason text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now       timestamptz := fencepost.clock();
  v_is_turned boolean;
begin
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._orders_check_switch(p_broker, p_account, jsonb_build_object('resume', p_reason));
  if p_account is not null then
    delete from fencepost.orders_halt h where h.broker = p_broker and h.account = p_account;
    v_is_turned := found;
    update fencepost.outbox o set not_before = v_now where o.id in (
      select l.id from fencepost.orders_order r join fencepost.outbox l on l.id = r.id
      where r.final_status is null and r.broker = p_broker and r.account = p_account and l.state = 'queued'
      order by l.id for update of l);
  else
    update fencepost.outbox o set not_before = v_now where o.id in (
      select l.id from fencepost.outbox l
      where l.channel = fencepost._orders_channel(p_broker) and l.ready and l.state = 'queued'
        and l.not_before > v_now
      order by l.id for update of l);
    select b.halted_at is not null into v_is_turned from fencepost.orders_broker b where b.broker = p_broker for no key update;
    update fencepost.orders_broker b
    set halted_at = null, halted_by = null, halted_reason = null, halted_code = null, answered_at = null, probe_at = null,
        paused_until = null, ask_paused_until = null, failures = 0, opened_until = null
    where b.broker = p_broker;
  end if;
  perform fencepost._event(v_now, 'broker', p_broker, 'resumed', p_actor, null,
                           jsonb_build_object('account', p_account, 'reason', p_reason));
  if v_is_turned then
    perform fencepost._orders_tell_switch(p_broker, p_account, 'broker.resumed', p_actor, p_reason, v_now);
  end if;
  perform fencepost._wake('outbox:' || fencepost._orders_channel(p_broker));
end $$;
