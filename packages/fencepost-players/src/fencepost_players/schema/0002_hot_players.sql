-- A plan adopts the version of the locked row, and responses are kept as their text: these functions have other arguments or
-- answers now.
drop function if exists fencepost._player_execute(text, text, text, jsonb, text, text, bigint, jsonb);
drop function if exists fencepost._player_execute_amounts(
  text[], text[], text[], jsonb[], text[], text[], bigint[], jsonb[]);
drop function if exists fencepost._player_lock(text[], text, bigint);
drop function if exists fencepost._player_amounts_unfit(text[], jsonb[]);
drop function if exists fencepost.player_look(text, text, text, text, jsonb);
