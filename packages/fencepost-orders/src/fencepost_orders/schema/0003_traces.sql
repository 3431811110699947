-- Accepting takes headers for the message, and taking gives them out: an order's place in a trace. A function's arguments and
-- columns are part of its name, so the old ones go; who calls the new ones as the old ones were called is answered as before.

drop function if exists fencepost.orders_accept(text, jsonb, text, text, text, text, text, text, timestamptz, interval);
drop function if exists fencepost._orders_create(text, jsonb, text, text, text, text, text, text, timestamptz, interval, bigint, text);
drop function if exists fencepost.orders_take(text, text, interval, integer);
drop function if exists fencepost.orders_take_unknown(text, text, interval, integer);
