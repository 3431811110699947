-- Limits of an account, decided in the transaction that accepts the order.
--
-- The sums of a day are by the account's own day. An order counts from its acceptance on, also if it is dead later: what may
-- have been placed is never counted as free again.
--
-- The reference price is what the caller's own source of prices wrote last (orders_price_set). A limit that needs it, without one
-- that is fresh, refuses: a price that is not known is not a price that fits.
--
-- Locks: the row of the account's day, after the lock of the key and before those of the outbox. Served by the primary keys.

-- A positive decimal of an order's document, or null when it has none that can be read.
create or replace function fencepost._orders_amount(p_request jsonb, p_name text) returns numeric
language sql immutable parallel safe
as $$
  select case when p_request ->> p_name ~ '^[0-9]{1,28}([.][0-9]{1,28})?$' then (p_request ->> p_name)::numeric end
$$;

-- The limits of an account: its own, or those of every account of its broker.
create or replace function fencepost._orders_limit_of(p_broker text, p_account text) returns fencepost.orders_limit
language sql stable
as $$
  select l from fencepost.orders_limit l
  where l.broker = p_broker and l.account in (p_account, '*') order by l.account = '*' limit 1
$$;

-- Hold an order to the limits of its account: null when it passes none, and then it is counted; otherwise the limit, its maximum,
-- and what the order has. p_before is the document of the order that this one replaces: then only what is added counts.
create or replace function fencepost._orders_over_limit(
  p_broker text, p_account text, p_symbol text, p_request jsonb, p_before jsonb default null
) returns jsonb
language plpgsql volatile
as $$
declare
  v_limit    fencepost.orders_limit := fencepost._orders_limit_of(p_broker, p_account);
  v_now      timestamptz := fencepost.clock();
  v_qty      numeric := fencepost._orders_amount(p_request, 'qty');
  v_asked    numeric := coalesce(fencepost._orders_amount(p_request, 'limit_price'),
                                 fencepost._orders_amount(p_request, 'stop_price'));
  v_price    fencepost.orders_price;
  v_notional numeric;
  v_added    numeric;
  v_one      integer := case when p_before is null then 1 else 0 end;
  v_day      fencepost.orders_day;
  v_today    date;
begin
  if v_limit.broker is null then
    return null;
  end if;
  if v_limit.day_orders_max is not null or v_limit.day_notional_max is not null then
    v_today := (v_now at time zone v_limit.day_zone)::date;
    for v_try in 1..2 loop
      select * into v_day from fencepost.orders_day d
      where d.broker = p_broker and d.account = p_account and d.day = v_today for update;
      exit when found;
      -- The first order of the day. An acceptance that has just inserted it is waited for.
      insert into fencepost.orders_day (broker, account, day) values (p_broker, p_account, v_today) on conflict do nothing;
      delete from fencepost.orders_day d where d.broker = p_broker and d.account = p_account and d.day < v_today - 7;
    end loop;
    -- Read again: the limits may have changed while this transaction waited for another acceptance.
    v_limit := fencepost._orders_limit_of(p_broker, p_account);
  end if;
  select * into v_price from fencepost.orders_price p
  where p.broker = p_broker and p.symbol = p_symbol and p.at > fencepost.clock() - v_limit.price_age_max;
  v_notional := v_qty * coalesce(v_asked, v_price.price);
  v_added := v_notional - coalesce(fencepost._orders_amount(p_before, 'qty') * coalesce(
    fencepost._orders_amount(p_before, 'limit_price'), fencepost._orders_amount(p_before, 'stop_price'), v_price.price), 0);
  if v_qty is null then
    return jsonb_build_object('limit', 'qty', 'max', v_limit.qty_max, 'got', null);
  elsif v_qty > v_limit.qty_max then
    return jsonb_build_object('limit', 'qty_max', 'max', v_limit.qty_max, 'got', v_qty);
  elsif v_price.price is null and (
          v_limit.collar is not null and v_asked is not null
          or v_asked is null and (v_limit.notional_max is not null or v_limit.day_notional_max is not null)) then
    return jsonb_build_object('limit', 'reference_price', 'symbol', p_symbol,
                              'max', extract(epoch from v_limit.price_age_max), 'got', (
      select extract(epoch from v_now - p.at) from fencepost.orders_price p where p.broker = p_broker and p.symbol = p_symbol));
  elsif v_notional > v_limit.notional_max then
    return jsonb_build_object('limit', 'notional_max', 'max', v_limit.notional_max, 'got', v_notional);
  elsif greatest(abs(fencepost._orders_amount(p_request, 'limit_price') - v_price.price),
                 abs(fencepost._orders_amount(p_request, 'stop_price') - v_price.price)) > v_limit.collar * v_price.price then
    return jsonb_build_object('limit', 'collar', 'max', v_limit.collar, 'reference', v_price.price, 'got',
      round(greatest(abs(fencepost._orders_amount(p_request, 'limit_price') - v_price.price),
                     abs(fencepost._orders_amount(p_request, 'stop_price') - v_price.price)) / v_price.price, 6));
  elsif v_day.orders + v_one > v_limit.day_orders_max then
    return jsonb_build_object('limit', 'day_orders_max', 'max', v_limit.day_orders_max, 'got', v_day.orders + v_one, 'day', v_today);
  elsif v_day.notional + v_added > v_limit.day_notional_max and v_added > 0 then
    return jsonb_build_object('limit', 'day_notional_max', 'max', v_limit.day_notional_max, 'got', v_day.notional + v_added,
                              'day', v_today);
  end if;
  if v_today is not null then
    update fencepost.orders_day d
    set orders = d.orders + v_one, notional = d.notional + greatest(0, coalesce(v_added, 0))
    where d.broker = p_broker and d.account = p_account and d.day = v_today;
  end if;
  return null;
end $$;

-- Set the limits of an account, or of every account without its own (*); without any the account has none. They hold from the
-- commit on. Raises not_found for an unknown broker; an account may be named before its first order.
create or replace function fencepost.orders_limits_set(
  p_broker text, p_account text, p_qty_max numeric, p_notional_max numeric, p_collar numeric, p_day_orders_max integer,
  p_day_notional_max numeric, p_day_zone text, p_price_age interval, p_actor text, p_reason text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_set fencepost.orders_limit;
begin
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_text('account', p_account, 128);
  perform fencepost._check_text('actor', p_actor, 256);
  perform fencepost._check_text('reason', p_reason, 1024);
  perform fencepost._check_text('day_zone', p_day_zone, 64);
  perform fencepost._check_duration('price_age', p_price_age, interval '30 days');
  if not exists (select 1 from pg_timezone_names z where z.name = p_day_zone) then
    raise exception 'day_zone must be the name of a time zone, such as America/New_York.'
      using errcode = 'ZF100', detail = '{"field": "day_zone"}';
  end if;
  if least(p_qty_max, p_notional_max, p_collar, p_day_orders_max, p_day_notional_max) <= 0
     or 'NaN' in (p_qty_max, p_notional_max, p_collar, p_day_notional_max) then
    raise exception 'a limit must be more than 0.' using errcode = 'ZF100', detail = '{"field": "limits"}';
  end if;
  perform fencepost._orders_check_switch(p_broker, null, jsonb_build_object('limits', p_reason));
  delete from fencepost.orders_limit l where l.broker = p_broker and l.account = p_account;
  if num_nonnulls(p_qty_max, p_notional_max, p_collar, p_day_orders_max, p_day_notional_max) > 0 then
    insert into fencepost.orders_limit (broker, account, qty_max, notional_max, collar, day_orders_max, day_notional_max, day_zone,
                                        price_age_max, set_at, set_by, reason)
    values (p_broker, p_account, p_qty_max, p_notional_max, p_collar, p_day_orders_max, p_day_notional_max, p_day_zone, p_price_age,
            fencepost.clock(), p_actor, p_reason)
    returning * into v_set;
  end if;
  perform fencepost._event(fencepost.clock(), 'broker', p_broker, 'limits set', p_actor, null,
    jsonb_build_object('account', p_account, 'reason', p_reason, 'limits', to_jsonb(v_set)));
end $$;

-- Reference prices, as the caller's own source of prices says them now. An older statement does not overwrite a newer one.
create or replace function fencepost.orders_price_set(p_broker text, p_symbols text[], p_prices numeric[], p_source text)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_now timestamptz := fencepost.clock();
begin
  perform fencepost._check_text('broker', p_broker, 64);
  perform fencepost._check_text('source', p_source, 256);
  perform fencepost._check_lengths('prices', cardinality(p_symbols), cardinality(p_prices));
  perform fencepost._check_text('symbols', s, 64) from unnest(p_symbols) s;
  if exists (select 1 from unnest(p_prices) p where p is null or p <= 0 or p = 'NaN') then
    raise exception 'a price must be more than 0.' using errcode = 'ZF100', detail = '{"field": "prices"}';
  end if;
  perform fencepost._orders_check_switch(p_broker, null, '{"prices": true}');
  -- In order of the symbol: two callers that set the same ones take turns.
  insert into fencepost.orders_price as p (broker, symbol, price, at, source)
  select p_broker, a.symbol, max(a.price), v_now, p_source from unnest(p_symbols, p_prices) a (symbol, price)
  group by a.symbol order by a.symbol collate "C"
  on conflict (broker, symbol) do update set price = excluded.price, at = excluded.at, source = excluded.source
  where p.at <= excluded.at;
end $$;

-- The limits, with what each account has placed today.
create or replace view fencepost.orders_limits as
  select l.broker, l.account, l.qty_max, l.notional_max, l.collar, l.day_orders_max, l.day_notional_max, l.day_zone, l.price_age_max,
         l.set_at, l.set_by, l.reason,
         coalesce((select jsonb_agg(jsonb_build_object('account', d.account, 'orders', d.orders, 'notional', d.notional)
                                    order by d.account)
                   from fencepost.orders_day d
                   where d.broker = l.broker and d.day = (fencepost.clock() at time zone l.day_zone)::date
                     and (d.account = l.account
                          or l.account = '*' and not exists (select 1 from fencepost.orders_limit o
                                                             where o.broker = d.broker and o.account = d.account))), '[]') as today
  from fencepost.orders_limit l;
