-- Coupons. The row's lock is held until the caller's transaction ends: of two that redeem one coupon, the second sees the first.

-- Issue a coupon; issuing it again changes nothing. Served by coupon_pkey.
create or replace function fencepost.coupon_issue(p_code text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  insert into fencepost.coupon (code) values (p_code) on conflict (code) do nothing;
end $$;

-- Redeem a coupon, or raise: not_found, or already_finished with what was seen. Locks the coupon's row. Served by coupon_pkey.
create or replace function fencepost.coupon_redeem(p_code text, p_customer text) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_coupon    fencepost.coupon;
  v_attempted jsonb := jsonb_build_object('customer', p_customer);
begin
  select * into v_coupon from fencepost.coupon c where c.code = p_code for update;
  if not found then
    perform fencepost._refuse('not_found', 'coupon', p_code, v_attempted, null);
  end if;
  if v_coupon.redeemed_by is not null then
    perform fencepost._refuse('already_finished', 'coupon', p_code, v_attempted, to_jsonb(v_coupon));
  end if;
  update fencepost.coupon c set redeemed_by = p_customer, redeemed_at = fencepost.clock() where c.code = p_code
  returning c.redeemed_at into v_coupon.redeemed_at;
  return v_coupon.redeemed_at;
end $$;
