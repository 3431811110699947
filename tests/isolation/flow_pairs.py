"""Two calls on one flow: commits, savepoints, dead letters and the log of an outbox channel."""

from tests.isolation.pairs import Call, Given, Pair, Second

NEWEST = "select 'newest at ' || frontier::text from fencepost.checkpoint order by number desc limit 1"
SAVED = "select 'saved ' || count(distinct resource) from fencepost.flow_savepoint having count(*) > 0"
LETTERS = """
select row_number() over (order by id) || coalesce(' asked as ' || replay, ' waits')
from fencepost.flow_dead order by id
"""
LETTER_COUNT = "select count(*) || ' letters' from fencepost.flow_dead"
LOG = "select number || ': ' || (payload #>> '{}') from fencepost.flow_inbox_message order by number"
TOLD = "select activity::text || ' under ' || token from fencepost.flow_activity"

REGISTER = """
    select fencepost.flow_register('f', '{"shape": {"units": "groups", "groups": 3, "senders": {}}}', 'a')
"""
HOLD = "select fencepost.lease_acquire('flow:f/all', 'a', '1 hour')"
RELEASE = "select fencepost.lease_release('flow:f/all', 'a', 1)"
COMMIT_ONE = "select fencepost.flow_commit('flow:f/all', 1, null, '1', null, true, 1)"
COMMIT_TWO = "select fencepost.flow_commit('flow:f/all', 1, '1', '2', null, true, 1)"
SAVE_IT = "select fencepost.flow_save('f', 's')"
EXPIRE = "select isolation.at(3601)"
BURY_TWO = """
    select fencepost.flow_bury('f', 'x', 'flow:f/all', 1, '{a, b}'::bytea[], '{a, b}', '{broken, broken}')
"""
PUT_THREE = """
    select count(*) from fencepost.outbox_put_many(
      'c', array['k', 'k', null], array['"one"', '"two"', '"three"']::jsonb[])
"""
# Each with a key of its own. PostgreSQL lets go of rows before it lets go of keys: a call that waited for a
# row may find the key still taken, and leaves the next message of the key to the next call.
PUT_APART = PUT_THREE.replace("'k', 'k'", "'k', 'l'")
GATHER_ALL = "select fencepost.flow_gather('f', 's', 'c', 10)"

ENTRIES = "select number || ': ' || id from fencepost.flow_log_entry order by number"
APPEND_ONE = """
    select fencepost.flow_log_append('f', 's', 'flow:f/all', 1, 0, null, '{a}', array['1']::jsonb[])
"""

ROWS = "select number || ': ' || encode(content, 'escape') from fencepost.flow_stage_row order by number"
SEND_TWO = """
    select fencepost.flow_stage_append('f', 's', 'flow:f/all', 1, 1, '{a, b}', '{1, 1}', '{null, 5}', false)
"""

GROUPS = "select 'groups ' || (shape ->> 'groups') from fencepost.flow"

HELD = Given(
    (
        REGISTER,
        HOLD,
    ),
    "",
    NEWEST,
)
ONE = Given((REGISTER, HOLD, COMMIT_ONE), "newest at 1", NEWEST)
ONE_SAVED = Given((REGISTER, HOLD, COMMIT_ONE), "", SAVED)
TWO = Given((REGISTER, HOLD, COMMIT_ONE, COMMIT_TWO), "newest at 2", NEWEST)
FREE = Given((REGISTER, HOLD, COMMIT_ONE, SAVE_IT, COMMIT_TWO, RELEASE), "newest at 2", NEWEST)
FREE_GROUPS = Given((REGISTER, HOLD, COMMIT_ONE, SAVE_IT, RELEASE), "groups 3", GROUPS)
BURIED = Given((HOLD, BURY_TWO), "1 waits; 2 waits", LETTERS)
BURIED_COUNT = Given((HOLD, BURY_TWO), "2 letters", LETTER_COUNT)
MESSAGES = Given((GATHER_ALL, PUT_THREE), "", LOG)
APART = Given((GATHER_ALL, PUT_APART), "", LOG)
LOGGED = Given(
    (HOLD, PUT_THREE, GATHER_ALL, EXPIRE),
    "1: one; 2: three; 3: two",
    LOG,
)
FOUND = Given((HOLD, APPEND_ONE), "1: a", ENTRIES)
SENT_SAVED = Given((REGISTER, HOLD, COMMIT_ONE, SEND_TWO), "", SAVED)
LATE_SENT = Given((REGISTER, HOLD, COMMIT_ONE, SEND_TWO, EXPIRE), "1: a; 2: b", ROWS)
LATE_FOUND = Given((HOLD, APPEND_ONE, EXPIRE), "1: a", ENTRIES)
LATE_HELD = Given((REGISTER, HOLD, EXPIRE), "", NEWEST)
LATE_BURIED = Given((HOLD, EXPIRE), "0 letters", LETTER_COUNT)
LATE_TOLD = Given((HOLD, EXPIRE), "", TOLD)

COMMIT = Call("commit", COMMIT_ONE, "1", {"1": "newest at 1"})
COMMIT_NEXT = Call("commit", COMMIT_TWO, "2")
COMMIT_THIRD = Call(
    "commit",
    "select fencepost.flow_commit('flow:f/all', 1, '2', '3', null, true, 1)",
    "3",
    {"3": "newest at 3", "4": "newest at 3"},
)
REWIND = Call(
    "rewind",
    "select fencepost.flow_rewind('flow:f/all', 1, 1)",
    "3",
    {"3": "newest at 1", "4": "newest at 1"},
)
RESHAPE = Call(
    "register with more groups",
    'select fencepost.flow_register(\'f\', \'{"shape": {"units": "groups", "groups": 5}}\', \'a\')',
    "2",
)
# The task that has committed, and the three groups, which have not.
DROP = Call("drop", "select fencepost.flow_drop('f', 's')", "4")
SAVE = Call("save", SAVE_IT, "4", {"4": "saved 4"})
RESTORE = Call("restore", "select fencepost.flow_restore('f', 's')", "1", {"1": "newest at 1"})
REGROUP = Call(
    "regroup",
    "select fencepost.flow_regroup('f', 's', 2, array['flow:f/group/0000', 'flow:f/group/0001'], array[1, 1],"
    " array['{}', '{}']::jsonb[], array[null, null]::bytea[])",
    "2",
    {"2": "groups 2"},
)
ACQUIRE = Call("acquire by b", "select token from fencepost.lease_acquire('flow:f/all', 'b', '1 hour')", "2")
ASK = "select fencepost.flow_replay('f', 'x', null, 10, 'me')"
REPLAY = Call("replay", ASK, "2", {"2": "1 asked as 1; 2 asked as 2"})
REPLAY_KEEPS = Call("replay", ASK, "2")
DISCARD = Call("discard", "select fencepost.flow_discard('f', 'x', null, 10)", "2", {"2": ""})
BURY = Call(
    "bury",
    "select fencepost.flow_bury('f', 'x', 'flow:f/all', 1, array['c']::bytea[], array['c'], array['e'])",
    "1",
    {"1": "3 letters"},
)
GATHER = Call(
    "gather",
    GATHER_ALL,
    "3",
    {"3": "1: one; 2: three; 3: two"},
)
GATHER_APART = Call("gather", GATHER_ALL, "3", {"3": "1: one; 2: two; 3: three"})
TAKE = Call(
    "take", "select payload #>> '{}' from fencepost.outbox_take('c', 'relay', '1 hour', 10)", "one, three"
)
TRIM = Call("trim", "select fencepost.flow_inbox_trim('f', 's', 'flow:f/all', 1, 3, 10)", "3", {"3": ""})
APPEND = Call(
    "append",
    "select fencepost.flow_log_append('f', 's', 'flow:f/all', 1, 1, '7', '{b, a}', array['2', '3']::jsonb[])",
    "2",
    {"2": "1: a; 2: b"},
)
TRIM_ENTRIES = Call(
    "trim", "select fencepost.flow_log_trim('f', 's', 'flow:f/all', 1, 1, 10)", "1", {"1": ""}
)
SEND = Call(
    "send",
    "select fencepost.flow_stage_append('f', 's', 'flow:f/all', 1, 2, '{c}', '{1}', '{null}', false)",
    "3",
    {"3": "1: a; 2: b; 3: c"},
)
TRIM_ROWS = Call("trim", "select fencepost.flow_stage_trim('f', 's', 'flow:f/all', 1, 1)", "1", {"1": "2: b"})
TRIM_KEEPS = Call("trim", "select fencepost.flow_stage_trim('f', 's', 'flow:f/all', 1, 1)", "1")
REPORT = Call(
    "report",
    "select fencepost.flow_report(array['flow:f/all'], array[1], array['7']::jsonb[])",
    "1",
    {"1": "7 under 1"},
)

MISMATCH = Second(committed="refused: mismatch")
TAKEN_OVER = Second(committed="refused: not_owner")
LATE = "refused: lease_expired"

PAIRS = (
    Pair("two commits from one frontier", HELD, COMMIT, COMMIT, MISMATCH, MISMATCH),
    Pair("a commit meets a rewind", TWO, COMMIT_THIRD, REWIND, MISMATCH, Second("4")),
    Pair("a commit meets a savepoint", ONE_SAVED, COMMIT_NEXT, SAVE, Second("2", "2"), Second("4", "4")),
    Pair(
        "two savepoints of one name",
        ONE_SAVED,
        SAVE,
        SAVE,
        Second("refused: duplicate"),
        Second("refused: duplicate"),
    ),
    # A commit of three groups and one of five are never both there.
    Pair("a commit meets another shape", HELD, COMMIT, RESHAPE, MISMATCH, MISMATCH),
    Pair("a restore meets a drop", FREE, RESTORE, DROP, Second("refused: not_found"), Second("4")),
    Pair("a restore meets a worker", FREE, RESTORE, ACQUIRE, Second("refused: in_flight"), Second("2")),
    Pair(
        "a regroup meets a worker", FREE_GROUPS, REGROUP, ACQUIRE, Second("refused: in_flight"), Second("2")
    ),
    Pair("a regroup meets a drop", FREE_GROUPS, REGROUP, DROP, Second("refused: not_found"), Second("4")),
    Pair("two restores", FREE, RESTORE, RESTORE, Second("1"), Second("1")),
    Pair("two replays", BURIED, REPLAY, REPLAY, Second("0"), Second("0")),
    Pair("a replay meets a discard", BURIED, REPLAY, DISCARD, Second("0"), Second("0")),
    Pair("a burial meets a replay", BURIED_COUNT, BURY, REPLAY_KEEPS, Second("1", "1"), Second("3", "2")),
    Pair("two move messages into the log", APART, GATHER_APART, GATHER_APART, Second("0"), Second("0")),
    Pair("the log meets a relay", MESSAGES, GATHER, TAKE, Second("0", "0"), Second("nothing", "nothing")),
    Pair(
        "a late commit meets a takeover", LATE_HELD, COMMIT.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")
    ),
    Pair(
        "a late burial meets a takeover", LATE_BURIED, BURY.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")
    ),
    Pair("a late trim meets a takeover", LOGGED, TRIM.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")),
    # The second is a call of the same task, whose answer was lost.
    Pair("two appends behind one number", FOUND, APPEND, APPEND, MISMATCH, MISMATCH),
    Pair(
        "a late append meets a takeover", LATE_FOUND, APPEND.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")
    ),
    Pair(
        "a late trim of entries meets a takeover",
        LATE_FOUND,
        TRIM_ENTRIES.answering(LATE),
        ACQUIRE,
        TAKEN_OVER,
        Second("2"),
    ),
    # A savepoint copies what its receivers lack: nothing is removed while it is made.
    Pair("a savepoint meets a trim of a stage", SENT_SAVED, SAVE, TRIM_KEEPS, Second("4"), Second("1")),
    Pair("a late send meets a takeover", LATE_SENT, SEND.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")),
    Pair(
        "a late trim of a stage meets a takeover",
        LATE_SENT,
        TRIM_ROWS.answering(LATE),
        ACQUIRE,
        TAKEN_OVER,
        Second("2"),
    ),
    Pair("a late report meets a takeover", LATE_TOLD, REPORT, ACQUIRE, Second("0"), Second("2")),
)
