-- Streams are not the source of truth, but invalid entries in them are recorded.

-- Record an entry that names no job, or names it wrongly, before it is acknowledged, so that no entry
-- disappears.
create or replace function fencepost.stream_poison(p_stream text, p_entry_id text, p_reason text, p_fields jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
begin
  perform fencepost._check_text('stream', p_stream, 512);
  perform fencepost._check_text('entry_id', p_entry_id, 64);
  perform fencepost._check_text('reason', p_reason, 64);
  perform fencepost._event(fencepost.clock(), 'stream', p_stream || '#' || p_entry_id, 'poison', null, null,
    jsonb_build_object('reason', p_reason,
      'fields', case when pg_column_size(p_fields) <= 16384 then p_fields else '"too large to keep"'::jsonb end));
end $$;
