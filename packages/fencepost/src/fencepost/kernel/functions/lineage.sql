-- A database that lost commits (a restored backup, a failover to a standby that lacked some) is noticed by the
-- first statement of every new connection, and once a second after it.
--
-- The database keeps a mark for each second in which it was used: a number and a random nonce. A client carries
-- the last mark that it was given. A mark that this database gave (its digest proves it) and does not have any
-- more is lost history, also when the numbers have grown past it since.
--
-- What was committed after the last mark is not covered by it. So a promotion counts as lossless only if the
-- replication was synchronous at the last mark; any other change of the timeline, or of the system, may have
-- lost commits, and is treated as if it had.

-- Where the server is now. The timeline is the beginning of a WAL file's name.
create or replace function fencepost._lineage_here(out system_identifier bigint, out timeline integer, out synchronous boolean)
language sql stable
as $$
  select s.system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer,
         current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local')
  from pg_control_system() s
$$;

-- A mark as a client carries it: number, nonce, epoch, floor of the tokens, digest.
create or replace function fencepost._lineage_sign(p_secret bytea, p_body text) returns text
language sql stable
as $$ select p_body || ':' || encode(sha256(p_secret || convert_to(p_body, 'UTF8')), 'hex') $$;

-- The parts of a mark, or null if this database did not give it.
create or replace function fencepost._lineage_read(p_secret bytea, p_mark text) returns text[]
language sql stable
as $$
  select (regexp_match(p_mark, '^(\d+):([-0-9a-f]{36}):(\d+):(\d+):[0-9a-f]{64}$'))
  where p_mark = fencepost._lineage_sign(p_secret, left(p_mark, -65))
$$;

-- What speaks against the database having all that it ever answered; null if nothing does. Served by the key of
-- lineage_mark.
create or replace function fencepost._lineage_evidence(p_held fencepost.lineage, p_mark text[]) returns jsonb
language plpgsql volatile
as $$
declare
  v_here record := fencepost._lineage_here();
begin
  if p_held.rewound is not null then
    return p_held.rewound;
  elsif p_held.system_identifier <> v_here.system_identifier then
    return jsonb_build_object('why', 'another system', 'was', p_held.system_identifier::text, 'is', v_here.system_identifier::text);
  elsif p_held.timeline <> v_here.timeline and not (p_held.synchronous and v_here.timeline > p_held.timeline) then
    return jsonb_build_object('why', 'another timeline without synchronous replication', 'was', p_held.timeline,
                              'is', v_here.timeline);
  elsif p_mark is null or p_mark[3]::bigint < p_held.epoch then
    return null;
  elsif p_mark[3]::bigint > p_held.epoch then
    return jsonb_build_object('why', 'an epoch is lost', 'was', p_mark[3]::bigint, 'is', p_held.epoch);
  -- A mark that is no longer kept cannot be verified.
  elsif not exists (select 1 from fencepost.lineage_mark m where m.number = p_mark[1]::bigint and m.nonce = p_mark[2]::uuid)
        and p_mark[1]::bigint >= coalesce((select min(m.number) from fencepost.lineage_mark m), 0) then
    return jsonb_build_object('why', 'a mark is lost', 'was', p_mark[1]::bigint,
                              'is', (select max(m.number) from fencepost.lineage_mark m));
  end if;
  return null;
end $$;

-- The newest mark, made now if the last one is older than a second. The caller holds the lineage row.
create or replace function fencepost._lineage_mark() returns void
language plpgsql volatile
as $$
declare
  v_last fencepost.lineage_mark;
begin
  -- The machine's own clock: a test that stops ours goes on using the database.
  select * into v_last from fencepost.lineage_mark m order by m.number desc limit 1;
  if v_last.at > clock_timestamp() - interval '1 second' and v_last.at <= clock_timestamp() then
    return;
  end if;
  insert into fencepost.lineage_mark (number, nonce, at, timeline, position)
  select coalesce(v_last.number, 0) + 1, gen_random_uuid(), clock_timestamp(), h.timeline, pg_current_wal_insert_lsn()
  from fencepost._lineage_here() h;
  delete from fencepost.lineage_mark m
  where m.number in (select o.number from fencepost.lineage_mark o order by o.number limit 10)
    and m.at < clock_timestamp() - interval '1 day' and m.number <= v_last.number;
end $$;

-- Raise every number of the components and of the kernel, above p_floor too, and begin the next epoch here.
-- Only the schema's owner may call it.
create or replace function fencepost._lineage_recover(p_actor text, p_floor bigint, p_epoch bigint, p_evidence jsonb)
returns jsonb
language plpgsql volatile
as $$
declare
  v_held  fencepost.lineage;
  v_found jsonb;
begin
  select * into v_held from fencepost.lineage l for update;
  v_found := jsonb_build_object('components', fencepost._components_recover(p_actor));
  v_found := v_found || fencepost._recover(p_actor, p_floor);
  update fencepost.lineage l
  set epoch = greatest(l.epoch, p_epoch) + 1, rewound = null, system_identifier = h.system_identifier, timeline = h.timeline,
      synchronous = h.synchronous
  from fencepost._lineage_here() h;
  perform fencepost._event(fencepost.clock(), 'kernel', 'lineage', 'epoch_raised', p_actor, greatest(v_held.epoch, p_epoch) + 1,
                           coalesce(p_evidence, '{}'));
  return v_found;
end $$;

-- Whether this is a standby, and how old its answers may be: the seconds since the newest mark that it has, null where
-- there is none. A mark is made each second in which the database is used; in an unused database the age
-- grows, though nothing is missing. Takes no lock; served by the key of lineage_mark.
create or replace function fencepost.read_age(out is_standby boolean, out age_seconds double precision)
language sql stable security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
  select pg_is_in_recovery(),
         case when pg_is_in_recovery() then
           (select greatest(0, extract(epoch from clock_timestamp() - m.at))::double precision
            from fencepost.lineage_mark m order by m.number desc limit 1)
         else 0 end
$$;

-- The first statement on a connection. p_mark is the last mark that the client was given, of any database.
-- Answers in_order, standby, recovered (the epoch was raised now) or rewound (it has to be), the present mark and the
-- evidence. Of many callers that bring evidence one raises the epoch: the row's lock makes the others wait, and
-- then nothing speaks against it any more. Locks the lineage row, and skips that while another caller marks.
create or replace function fencepost.lineage_check(p_mark text, p_recover boolean)
returns table (state text, mark text, epoch bigint, evidence jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, fencepost, pg_temp
as $$
declare
  v_held     fencepost.lineage;
  v_here     record;
  v_mark     text[];
  v_evidence jsonb;
  v_state    text := 'in_order';
begin
  if pg_is_in_recovery() then
    return query select 'standby', p_mark, l.epoch, null::jsonb from fencepost.lineage l;
    return;
  end if;
  select * into v_held from fencepost.lineage l;
  v_mark := fencepost._lineage_read(v_held.secret, p_mark);
  v_evidence := fencepost._lineage_evidence(v_held, v_mark);
  if v_evidence is not null then
    select * into v_held from fencepost.lineage l for update;
    v_evidence := fencepost._lineage_evidence(v_held, v_mark);
  end if;
  if v_evidence is not null and p_recover then
    perform fencepost._lineage_recover(session_user, coalesce(v_mark[4]::bigint, 0), coalesce(v_mark[3]::bigint, 0), v_evidence);
    v_state := 'recovered';
  elsif v_evidence is not null then
    -- Kept, so that clients without a mark are refused too, until an operator recovers.
    update fencepost.lineage l set rewound = v_evidence;
    perform fencepost._refusal_count('rewound');
    return query select 'rewound', p_mark, v_held.epoch, v_evidence;
    return;
  end if;
  if v_state = 'in_order' then
    select * into v_held from fencepost.lineage l for no key update skip locked;
    if v_held.secret is null and not exists (select 1 from fencepost.lineage_mark) then
      -- The first mark of all is being made: there is none to answer with before it.
      select * into v_held from fencepost.lineage l for no key update;
    end if;
  else
    select * into v_held from fencepost.lineage l;
  end if;
  if v_held.secret is not null then
    v_here := fencepost._lineage_here();
    if v_state = 'in_order' and (v_held.system_identifier, v_held.timeline, v_held.synchronous)
         is distinct from (v_here.system_identifier, v_here.timeline, v_here.synchronous) then
      update fencepost.lineage l
      set system_identifier = v_here.system_identifier, timeline = v_here.timeline, synchronous = v_here.synchronous;
    end if;
    perform fencepost._lineage_mark();
  end if;
  return query
    select v_state, fencepost._lineage_sign(l.secret, m.number || ':' || m.nonce || ':' || l.epoch || ':' || f.floor), l.epoch,
           v_evidence
    from fencepost.lineage l, fencepost.token_floor f, (select * from fencepost.lineage_mark o order by o.number desc limit 1) m;
end $$;
