-- Used by every function: the clock, and the checks of arguments.

-- The clock. Everything that compares times reads it here, once into a variable, and again after it has
-- waited for a lock. now() is the start of the transaction: a lease would look valid long after its end. Inside
-- a WHERE this function would be called for every row and defeat the index.
--
-- The testing kit replaces it in a test's database, so that tests move time instead of sleeping.
create or replace function fencepost.clock() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;

-- A function that judges a row needs its newest version. Under REPEATABLE READ or SERIALIZABLE the snapshot
-- is older than the lock, so the answer would be outdated: this raises at once. Functions that only add a row
-- (outbox_put, job_submit) do not call this and work at any level.
create or replace function fencepost._require_read_committed() returns void
language plpgsql volatile
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Fencepost judges rows by their newest version and needs READ COMMITTED, but this transaction is %.',
        upper(current_setting('transaction_isolation'))
      using errcode = 'ZF101', hint = 'Call it in a transaction of its own, begun with READ COMMITTED.';
  end if;
end $$;

-- A text argument: present, not empty, not past its documented size.
create or replace function fencepost._check_text(p_field text, p_value text, p_bytes_max integer) returns void
language plpgsql immutable
as $$
begin
  if p_value is null or p_value = '' then
    raise exception '% must not be empty.', p_field
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
  if octet_length(p_value) > p_bytes_max then
    raise exception '% has % bytes; at most % are allowed.', p_field, octet_length(p_value), p_bytes_max
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A JSON argument: not past its documented size. SQL null is allowed where the caller allows it.
create or replace function fencepost._check_json(p_field text, p_value jsonb, p_bytes_max integer) returns void
language plpgsql immutable
as $$
begin
  -- pg_column_size of a value that was not stored yet is its size in memory: no text is built to measure it.
  if pg_column_size(p_value) > p_bytes_max then
    raise exception '% has % bytes; at most % are allowed.', p_field, pg_column_size(p_value), p_bytes_max
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- Many of them: one check for all, and only invalid ones are checked one by one. A function call for each
-- element costs more than the work of the hot functions on it. p_optional allows nulls.
create or replace function fencepost._check_texts(p_field text, p_values text[], p_bytes_max integer, p_optional boolean default false)
returns void
language plpgsql immutable
as $$
begin
  if exists (select 1 from unnest(p_values) v where v = '' or octet_length(v) > p_bytes_max or (v is null and not p_optional)) then
    perform fencepost._check_text(p_field, v, p_bytes_max) from unnest(p_values) v where v is not null or not p_optional;
  end if;
end $$;

create or replace function fencepost._check_documents(p_field text, p_values jsonb[], p_bytes_max integer) returns void
language plpgsql immutable
as $$
begin
  if exists (select 1 from unnest(p_values) v where pg_column_size(v) > p_bytes_max) then
    perform fencepost._check_json(p_field, v, p_bytes_max) from unnest(p_values) v;
  end if;
end $$;

-- A duration: longer than zero, not longer than p_max.
create or replace function fencepost._check_duration(p_field text, p_value interval, p_max interval) returns void
language plpgsql immutable
as $$
begin
  if p_value is null or p_value <= interval '0' or p_value > p_max then
    raise exception '% is %; it must be more than 0 and at most %.', p_field, coalesce(p_value::text, 'null'), p_max
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A delay or a grace: zero or more. Null is invalid: every comparison with it is null, and a negative one
-- lies before the end, so that either would let a valid lease be taken over.
create or replace function fencepost._check_wait(p_field text, p_value interval, p_max interval) returns void
language plpgsql immutable
as $$
begin
  if p_value is null or p_value < interval '0' or p_value > p_max then
    raise exception '% is %; it must be between 0 and %.', p_field, coalesce(p_value::text, 'null'), p_max
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A time, or null: infinity would never come.
create or replace function fencepost._check_moment(p_field text, p_value timestamptz) returns void
language plpgsql immutable
as $$
begin
  if not isfinite(p_value) then
    raise exception '% is %; it must be a finite time.', p_field, p_value
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A token, an attempt or a take: present. Null equals nothing and differs from nothing, so a fence cannot
-- compare it.
create or replace function fencepost._check_token(p_field text, p_value bigint) returns void
language plpgsql immutable
as $$
begin
  if p_value is null then
    raise exception '% must not be null.', p_field using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- What every call of a holder gives: its attempt and its name, in a READ COMMITTED transaction. One call and not
-- three, because starting a statement costs more than the checks.
create or replace function fencepost._check_holder(p_attempt bigint, p_owner text) returns void
language plpgsql volatile
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform fencepost._require_read_committed();
  end if;
  if p_owner is null or p_owner = '' or octet_length(p_owner) > 256 then
    perform fencepost._check_text('owner', p_owner, 256);
  end if;
  if p_attempt is null then
    perform fencepost._check_token('attempt', p_attempt);
  end if;
end $$;

-- Whether _check_holder would raise nothing: an expression that the planner puts into its callers, which costs them no call.
create or replace function fencepost._is_holder(p_attempt bigint, p_owner text) returns boolean
language sql stable
as $$
  select p_attempt is not null and p_owner <> '' and octet_length(p_owner) <= 256
     and current_setting('transaction_isolation') = 'read committed'
$$;

-- An array of tokens or ids: present, without null elements.
create or replace function fencepost._check_tokens(p_field text, p_values bigint[]) returns void
language plpgsql immutable
as $$
begin
  if p_values is null or array_position(p_values, null) is not null then
    raise exception '% must not be null, nor hold a null.', p_field
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A limit: null would mean all.
create or replace function fencepost._check_limit(p_limit integer) returns void
language plpgsql immutable
as $$
begin
  if p_limit is null or p_limit < 0 then
    raise exception 'limit is %; it must be 0 or more.', coalesce(p_limit::text, 'null')
      using errcode = 'ZF100', detail = '{"field": "limit"}';
  end if;
end $$;

-- The time before which a pruning deletes. Also checks both arguments: null would keep all, or delete all.
create or replace function fencepost._prune_before(p_keep interval, p_limit integer, p_max interval default interval '100 years')
returns timestamptz
language plpgsql volatile
as $$
begin
  perform fencepost._check_duration('keep', p_keep, p_max);
  perform fencepost._check_limit(p_limit);
  return fencepost.clock() - p_keep;
end $$;

-- One of a set of words.
create or replace function fencepost._check_word(p_field text, p_value text, p_allowed text[]) returns void
language plpgsql immutable
as $$
begin
  if p_value is null or p_value <> all (p_allowed) then
    raise exception '% is %; it must be one of %.', p_field, coalesce(quote_literal(p_value), 'null'),
        array_to_string(p_allowed, ', ')
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- Arrays that belong together have one length.
create or replace function fencepost._check_lengths(p_field text, p_expected integer, p_given integer) returns void
language plpgsql immutable
as $$
begin
  if p_expected is distinct from p_given then
    raise exception '% has % elements; % were expected.', p_field, p_given, p_expected
      using errcode = 'ZF100', detail = jsonb_build_object('field', p_field);
  end if;
end $$;

-- A paused holder must not block a takeover for ever: inside a fenced transaction an idle session is
-- terminated after half its lease. Local to the transaction, and undone with the savepoint that undoes the
-- fence.
create or replace function fencepost._bound_idle_time(p_lease interval) returns void
language plpgsql volatile
as $$
declare
  v_now_ms  bigint := extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
  v_want_ms bigint := greatest(1, extract(epoch from p_lease) * 500);
begin
  if v_now_ms = 0 or v_now_ms > v_want_ms then
    perform set_config('idle_in_transaction_session_timeout', v_want_ms::text, true);
  end if;
end $$;
