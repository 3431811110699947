"""What the hot functions of flows touch does not grow with the history. Counted in pages: no load can blur
that."""

from typing import Any, LiteralString

import psycopg

from fencepost.embedded import Database

Connection = psycopg.Connection[Any]
# A tree of many rows is a level higher than one of few; each index that is touched may show it.
MORE_PAGES = 40

BEGINNING: tuple[LiteralString, ...] = (
    "select fencepost.lease_acquire('flow:f/all', 'a/boot-1', '1 hour')",
    """
    select fencepost.flow_register(
      'f', '{"nodes": [{"name": "dead-x"}], "edges": [], "shape": {"units": "all", "senders": {}}}',
      'a/boot-1')
    """,
    "select fencepost.flow_commit('flow:f/all', 1, null, '1', null, true, 1)",
    "select fencepost.flow_bury('f', 'x', 'flow:f/all', 1, '{a, b}'::bytea[], '{a, b}', '{e, e}')",
    "select fencepost.outbox_put('c', null, '1')",
    "select fencepost.flow_gather('f', 's', 'c', 10)",
    """
    select fencepost.flow_log_append(
      'f', 's', 'flow:f/all', 1, 0, null, '{a, b, c}', array['1', '2', '3']::jsonb[])
    """,
    """
    select fencepost.flow_stage_append(
      'f', 'stage-1:0000', 'flow:f/all', 1, 1, '{a, b, c}', '{1, 1, 1}', '{null, null, 1}', false)
    """,
)
# Of other flows, and of this one: what was committed, asked for and read long ago.
HISTORY: tuple[LiteralString, ...] = (
    """
    insert into fencepost.lease (resource, owner, token, ttl, acquired_at, renewed_at, expires_at)
    select 'flow:' || case when i % 2 = 0 then 'e' else 'g' end || '/part/' || i, 'o', 1, interval '1 hour',
           now(), now(), now() + interval '1 hour'
    from generate_series(1, 20000) i
    """,
    """
    insert into fencepost.checkpoint
      (resource, number, token, status, whole, frontier, begun_at, stored_at, committed_at)
    select case i % 3 when 0 then 'flow:f/all' when 1 then 'flow:e/all' else 'flow:g/part/' || i end,
           i, 1, 'committed', true, '1', now(), now(), now()
    from generate_series(2, 20000) i
    """,
    """
    insert into fencepost.flow_dead
      (flow, step, resource, record, preview, error, died_at, replay, replay_at, replay_by)
    select 'f', 'x', 'flow:f/all', bytea 'a', 'a', 'e', now(), i, now(), 'me' from generate_series(1, 20000) i
    union all
    select 'f', 'y', 'flow:f/all', bytea 'a', 'a', 'e', now(), null, null, null
    from generate_series(1, 20000) i
    """,
    """
    insert into fencepost.flow_inbox_message
      (flow, source, number, message_id, payload, headers, created_at)
    select case when i % 2 = 0 then 'e' else 'g' end, 's', i, 1000000 + i, '1', '{}', now()
    from generate_series(1, 20000) i
    """,
    """
    insert into fencepost.flow_log_entry (flow, source, number, id, entry)
    select case when i % 2 = 0 then 'e' else 'g' end, 's', i, 'id-' || i, '1' from generate_series(1, 20000) i
    """,
    """
    insert into fencepost.flow_stage_row (flow, sender, number, checkpoint, content, records)
    select case when i % 2 = 0 then 'e' else 'g' end, 'stage-1:0000', i, i, 'a', 1
    from generate_series(1, 20000) i
    """,
    """
    insert into fencepost.flow_activity (resource, token, reported_at, activity)
    select 'flow:' || case when i % 2 = 0 then 'e' else 'g' end || '/part/' || i, 1, now(), '{}'
    from generate_series(1, 20000) i
    """,
)
CALLS: dict[str, LiteralString] = {
    "commit": "select fencepost.flow_commit('flow:f/all', 1, '1', '2', null, true, 1)",
    "registration": """
        select fencepost.flow_register('f', '{"shape": {"units": "all", "senders": {}}}', 'a/boot-1')
    """,
    "stand": "select fencepost.flow_stand('flow:f/all', 1)",
    "unanswered": "select * from fencepost.flow_unanswered('f', now())",
    "number": "select fencepost.flow_number('flow:f/all')",
    "frontiers": "select * from fencepost.flow_frontiers('f')",
    "holders": "select * from fencepost.flow_holders('f')",
    "bury": "select fencepost.flow_bury('f', 'x', 'flow:f/all', 1, '{c}'::bytea[], '{c}', '{e}')",
    "replay": "select fencepost.flow_replay('f', 'x', null, 1, 'me')",
    "replays": "select * from fencepost.flow_replays('f', 'x', 20000, 10)",
    "discard": "select fencepost.flow_discard('f', 'x', null, 1)",
    "forget": "select fencepost.flow_forget('f', 'x', 1, '1 day', 1)",
    "gather": "select fencepost.flow_gather('f', 's', 'c', 10)",
    "read of the log": "select * from fencepost.flow_inbox_read('f', 's', 0, 10)",
    "range of the log": "select * from fencepost.flow_inbox_range('f', 's')",
    "trim": "select fencepost.flow_inbox_trim('f', 's', 'flow:f/all', 1, 1, 10)",
    "append": "select fencepost.flow_log_append('f', 's', 'flow:f/all', 1, 3, null, '{x}', '{1}'::jsonb[])",
    "read of entries": "select * from fencepost.flow_log_read('f', 's', 0, 10)",
    "known entries": "select * from fencepost.flow_log_known('f', 's', '{a, b, x}')",
    "state of a log": "select * from fencepost.flow_log_state('f', 's')",
    "trim of entries": "select fencepost.flow_log_trim('f', 's', 'flow:f/all', 1, 1, 10)",
    "append of a stage": """
        select fencepost.flow_stage_append(
          'f', 'stage-1:0000', 'flow:f/all', 1, 2, '{a}', '{1}', '{null}', false)
    """,
    "read of a stage": "select * from fencepost.flow_stage_read('f', 'stage-1:0000', 1, 10)",
    "state of a stage": "select * from fencepost.flow_stage_state('f', 'stage-1:0000', true)",
    "trim of a stage": "select fencepost.flow_stage_trim('f', 'stage-1:0000', 'flow:f/all', 1, 1)",
    "report": "select fencepost.flow_report('{flow:f/all}', '{1}', array['{}']::jsonb[])",
    "activities": "select * from fencepost.flow_activities('f')",
    "edges": "select * from fencepost.flow_edges('f')",
}


def pages_of(connection: Connection, call: LiteralString) -> int:
    """Pages of tables and indexes that a call reads or writes, after its plans are made; it is undone."""
    found: list[int] = []
    for _ in range(4):
        with connection.transaction(force_rollback=True):
            statement: Any = "explain (analyze, buffers, timing off, format json) " + call
            plan = connection.execute(statement).fetchall()[0][0][0]["Plan"]
            found.append(int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]))
    return min(found)


def test_a_long_history_costs_no_hot_function_anything(database: Database) -> None:
    with database.connect_admin() as connection:
        for statement in BEGINNING:
            connection.execute(statement)
        before = {name: pages_of(connection, call) for name, call in CALLS.items()}
        for statement in HISTORY:
            connection.execute(statement)

        after = {name: pages_of(connection, call) for name, call in CALLS.items()}

    grown = {name: (before[name], after[name]) for name in CALLS if after[name] > before[name] + MORE_PAGES}
    assert grown == {}


def test_a_scan_would_be_seen(database: Database) -> None:
    with database.connect_admin() as connection:
        for statement in BEGINNING:
            connection.execute(statement)
        before = pages_of(connection, CALLS["replays"])
        for statement in HISTORY:
            connection.execute(statement)
        connection.execute("drop index fencepost.flow_dead_replays")

        assert pages_of(connection, CALLS["replays"]) > before + MORE_PAGES
