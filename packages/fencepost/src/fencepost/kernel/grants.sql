-- Explanations, rights and planner settings, by rule and not by list: nothing can be forgotten.

-- The union of what each function _explain_NOUN(name) answers. Made here, when all components have created theirs: a
-- function that looked for them at each call would run text.
do $$
declare
  v_arms text := (
    select string_agg(format('select * from fencepost.%I(p_name) where p_noun = %L', p.proname, substr(p.proname, 10)),
                      e'\n  union all ' order by p.proname)
    from pg_proc p where p.pronamespace = 'fencepost'::regnamespace and p.proname like '\_explain\_%'
      and p.pronargs = 1 and p.proargtypes[0] = 'text'::regtype);
begin
  -- A database on its way, in a test of migrations, has none.
  if v_arms is null then
    return;
  end if;
  execute format(
    'create or replace function fencepost._explain_named(p_noun text, p_name text)
     returns table (at timestamptz, event text, actor text, token bigint, detail jsonb) language sql stable as %L',
    e'\n  ' || v_arms || e'\n');
end $$;

-- What every function _recover_NAME(actor) answers, by name. Made here for the same reason.
do $$
declare
  v_calls text := (
    select string_agg(format('%L, fencepost.%I(p_actor)', substr(p.proname, 10), p.proname), ', ' order by p.proname)
    from pg_proc p where p.pronamespace = 'fencepost'::regnamespace and p.proname like '\_recover\_%'
      and p.pronargs = 1 and p.proargtypes[0] = 'text'::regtype);
begin
  execute format(
    'create or replace function fencepost._components_recover(p_actor text) returns jsonb language sql volatile as %L',
    format('select jsonb_build_object(%s)', coalesce(v_calls, '')));
end $$;

-- A function whose name begins with an underscore is internal and granted to no role; it runs inside a definer function,
-- as the owner. Every other function is for the application; what is STABLE is also for the read-only role. Views are
-- for both, tables for neither.
revoke all on all functions in schema fencepost from public;
revoke all on all tables in schema fencepost from public, fencepost_app, fencepost_read;
revoke all on all sequences in schema fencepost from public, fencepost_app, fencepost_read;
grant usage on schema fencepost to fencepost_app, fencepost_read;

do $$
declare
  v record;
begin
  for v in select p.oid::regprocedure as signature, p.provolatile = 's' or p.proname = 'clock' as reads
           from pg_proc p where p.pronamespace = 'fencepost'::regnamespace and p.proname not like '\_%' loop
    execute format('grant execute on function %s to fencepost_app', v.signature);
    if v.reads then
      execute format('grant execute on function %s to fencepost_read', v.signature);
    end if;
  end loop;
  -- Every access here is by an index, in the index's order. Left to itself the planner scans when the tables were empty
  -- at the time of the plan, which a pooled connection then keeps, and sorts a whole history when statistics are missing.
  -- With that pinned, one plan fits all arguments: making it anew for each call only costs.
  for v in select p.oid::regprocedure as signature, s.setting, s.value
           from pg_proc p, (values ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'),
                                   ('enable_mergejoin', 'off'), ('jit', 'off'), ('plan_cache_mode', 'force_generic_plan'))
             s (setting, value)
           where p.pronamespace = 'fencepost'::regnamespace and p.prosecdef loop
    execute format('alter function %s set %I = %L', v.signature, v.setting, v.value);
  end loop;
  for v in select c.oid::regclass as name from pg_class c
           where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'v' loop
    execute format('grant select on %s to fencepost_app, fencepost_read', v.name);
  end loop;
end $$;
