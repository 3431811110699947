-- A coupon, and who redeemed it.
create table fencepost.coupon (
  code        text collate "C" not null,
  redeemed_by text,
  redeemed_at timestamptz,
  constraint coupon_pkey primary key (code),
  constraint coupon_is_redeemed_whole check ((redeemed_by is null) = (redeemed_at is null))
);
