-- Following an order after the broker accepted it: its fills, and its end. The order stays sent; what changes here is the stored
-- answer of the broker, with its digest beside the idempotency key and a line in the audit whenever it changed.
--
-- A follow-up is fenced by its take, like every settlement: a stalled worker must not overwrite a newer answer with an older one.
-- Locks: the broker's row (to query), then the rows to follow in order of id, then their orders. No transaction that holds an
-- order waits for its row here: pruning skips orders that are followed.
-- Served by orders_fill_tracking_due and the primary keys.

-- How long after the acceptance the broker is queried for the first time.
create or replace function fencepost._orders_fill_first() returns interval
language sql immutable parallel safe
as $$ select interval '1 second' $$;

-- Orders to query, at most half of what the throttle allows: sending has precedence.
create or replace function fencepost.orders_fill_take(p_broker text, p_lease interval, p_limit integer)
returns table (id bigint, take bigint, request jsonb, idempotency_key text, account text, broker_order_id text, asks integer,
               created_at timestamptz, stamped_at timestamptz, asked_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := fencepost.clock();
  v_allowed integer;
  v_count   integer;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_duration('lease', p_lease, interval '1 day');
  perform fencepost._check_limit(p_limit);
  -- Checked first without a lock: all workers share the broker's row, and most of the time nothing is due.
  if not exists (select 1 from fencepost.orders_fill_tracking f where f.broker = p_broker and f.ask_at <= v_now) then
    return;
  end if;
  v_allowed := least(p_limit, (fencepost._orders_allowance(p_broker, 2147483646, true) + 1) / 2);
  v_now := fencepost.clock();
  return query
  with due as materialized (
    select f.order_id from fencepost.orders_fill_tracking f where f.broker = p_broker and f.ask_at <= v_now
    order by f.ask_at, f.order_id limit v_allowed for update skip locked
  ), taken as (
    update fencepost.orders_fill_tracking f set take = f.take + 1, asks = f.asks + 1, ask_at = v_now + p_lease
    where f.order_id = any (array(select d.order_id from due d))
    returning f.order_id, f.take, f.asks
  )
  select r.id, t.take, coalesce(r.terms, r.request_json), coalesce(r.client_id, r.idempotency_key), r.account, r.broker_order_id, t.asks, r.created_at,
         coalesce(r.stamped_at, r.created_at), v_now
  from taken t join fencepost.orders_order r on r.id = t.order_id order by r.id;
  get diagnostics v_count = row_count;
  perform fencepost._orders_spend(p_broker, v_count, true);
end $$;

-- Store the broker's current answer about one order; returns whether it differs from the one before.
create or replace function fencepost._orders_hear(p_id bigint, p_result jsonb, p_owner text, p_take bigint, p_now timestamptz)
returns boolean
language plpgsql volatile
as $$
declare
  v_order fencepost.orders_order;
begin
  if exists (select 1 from fencepost.orders_result x where x.order_id = p_id and x.result_digest = p_result ->> 'digest') then
    return false;
  end if;
  update fencepost.orders_order r
  set updated_at = p_now, broker_order_id = coalesce(p_result ->> 'broker_order_id', r.broker_order_id)
  where r.id = p_id returning * into strict v_order;
  perform fencepost._orders_store_result(v_order, p_result, p_now);
  perform fencepost._orders_audit(p_now, v_order, 'sent', 'sent', null, p_owner, p_take,
                                  left('the broker says ' || coalesce(p_result ->> 'status', 'nothing'), 1000));
  return true;
end $$;

-- Settle follow-ups. Without a result nothing new is known. p_over says that there is nothing more to query; otherwise the order
-- is queried again after its delay. Returns for each: changed, same, or why it was refused.
create or replace function fencepost.orders_fill_settle(
  p_broker text, p_owner text, p_ids bigint[], p_takes bigint[], p_results jsonb[], p_overs boolean[], p_delays interval[],
  p_health text[]
) returns table (id bigint, state text, refusal text)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
#variable_conflict use_column
declare
  v_now   timestamptz;
  v_asked record;
  v_row   fencepost.orders_fill_tracking;
  v_over  boolean;
begin
  perform fencepost._require_read_committed();
  perform fencepost._check_text('owner', p_owner, 256);
  perform fencepost._check_tokens('ids', p_ids);
  perform fencepost._check_tokens('takes', p_takes);
  perform fencepost._check_lengths('takes', cardinality(p_ids), cardinality(p_takes));
  perform fencepost._check_lengths('results', cardinality(p_ids), cardinality(p_results));
  perform fencepost._check_lengths('overs', cardinality(p_ids), cardinality(p_overs));
  perform fencepost._check_lengths('delays', cardinality(p_ids), cardinality(p_delays));
  perform fencepost._check_lengths('health', cardinality(p_ids), cardinality(p_health));
  perform fencepost._check_documents('results', p_results, 65536);
  perform fencepost._check_wait('delays', coalesce(d, interval '0'), interval '10 years') from unnest(p_delays) d;
  perform 1 from fencepost.orders_fill_tracking f where f.order_id = any (p_ids) order by f.order_id for update;
  v_now := fencepost.clock();
  for v_asked in
    select a.* from unnest(p_ids, p_takes, p_results, p_overs, p_delays) a (id, take, result, is_over, delay) order by a.id
  loop
    select * into v_row from fencepost.orders_fill_tracking f where f.order_id = v_asked.id and f.broker = p_broker;
    id := v_asked.id;
    state := null;
    refusal := case when not found then 'not_found' when v_row.take <> v_asked.take then 'stale_attempt' end;
    if refusal is null then
      state := 'same';
      if v_asked.result is not null then
        if fencepost._orders_hear(v_asked.id, v_asked.result, p_owner, v_asked.take, v_now) then
          state := 'changed';
        end if;
      end if;
      v_over := case when v_asked.is_over then coalesce(v_asked.result -> 'open' = 'false', false) end;
      if v_over is not null or state = 'changed' then
        perform fencepost._orders_tell_transition(v_asked.id, 'sent', 'sent', null, v_now, v_over);
      end if;
      if v_asked.is_over then
        delete from fencepost.orders_fill_tracking f where f.order_id = v_asked.id;
      else
        update fencepost.orders_fill_tracking f set ask_at = v_now + coalesce(v_asked.delay, interval '1 second')
        where f.order_id = v_asked.id;
      end if;
    else
      perform fencepost._refusal_note(refusal, 'order', v_asked.id::text, p_owner,
        jsonb_build_object('take', v_asked.take, 'follow_up', v_asked.result -> 'status'), to_jsonb(v_row));
    end if;
    return next;
  end loop;
  perform fencepost._orders_note_health(p_broker, p_health, p_delays);
end $$;

-- How many orders are followed, and how late the most overdue query is: for metrics.
create or replace function fencepost.orders_fill_counts() returns table (broker text, orders bigint, late_seconds double precision)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select f.broker, count(*), greatest(0, extract(epoch from fencepost.clock() - min(f.ask_at)))::double precision
  from fencepost.orders_broker b join fencepost.orders_fill_tracking f on f.broker = b.broker group by f.broker
$$;
