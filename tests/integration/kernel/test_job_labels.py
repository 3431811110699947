"""Labels: jobs are found by tags and by the arguments that are searched."""

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller

SUBMIT = """select job_id from fencepost.job_submit(%s, %s, %s::jsonb, p_tags => %s::text[],
              p_search_by => '{user, missing}')"""
SEARCH = "select * from fencepost.job_search(%s::text[], %s::jsonb)"


def submit(app: Caller, tags: list[str], payload: str = "{}", queue: str = "mail", kind: str = "send") -> int:
    job_id: int = app.value(SUBMIT, queue, kind, payload, tags)
    return job_id


def test_jobs_are_found_by_all_of_their_tags_newest_first(app: Caller, clock: Clock) -> None:
    both = [submit(app, ["a", "b"]) for _ in range(3)]
    one = submit(app, ["a"])
    submit(app, [])

    assert app.column(SEARCH, ["a"], "{}") == [one, *reversed(both)]
    assert app.column(SEARCH, ["a", "b"], "{}") == list(reversed(both))
    assert app.column(SEARCH, ["b", "a"], "{}") == list(reversed(both))
    assert app.column(SEARCH, ["c"], "{}") == []


def test_jobs_are_found_by_their_arguments_as_json(app: Caller, clock: Clock) -> None:
    number = submit(app, [], '{"user": 7}')
    text = submit(app, [], '{"user": "7"}')
    nested = submit(app, ["x"], '{"user": {"b": 1, "a": [2]}}')
    long = submit(app, [], f'{{"user": "{"x" * 5000}"}}')

    assert app.column(SEARCH, [], '{"user": 7}') == [number]
    assert app.column(SEARCH, [], '{"user": "7"}') == [text]
    assert app.column(SEARCH, ["x"], '{"user": {"a": [2], "b": 1}}') == [nested]
    assert app.column(SEARCH, [], f'{{"user": "{"x" * 5000}"}}') == [long]
    assert app.column(SEARCH, ["x"], '{"user": 7}') == []


def test_a_page_begins_below_an_id_and_filters(app: Caller, clock: Clock) -> None:
    first, second = submit(app, ["a"]), submit(app, ["a"], queue="post")
    third = submit(app, ["a"], kind="other")
    job_calls.claim(app, first)
    search = "select * from fencepost.job_search('{a}', "

    assert app.column(search + "p_limit => 2)") == [third, second]
    assert app.column(search + "p_before_id => %s)", second) == [first]
    assert app.column(search + "p_state => 'running')") == [first]
    assert app.column(search + "p_queue => 'post')") == [second]
    assert app.column(search + "p_kind => 'other', p_state => 'pending')") == [third]
    assert app.column(search + "p_state => 'running', p_scan => 2)") == [], "the bound comes first"


def test_many_have_the_same_tags_and_arguments_of_their_own(app: Caller, clock: Clock) -> None:
    ids = app.column(
        """select job_id from fencepost.job_submit_many('mail', 'send', %s::jsonb[], p_tags => '{t, t}',
             p_search_by => '{n}')""",
        ['{"n": 1}', '{"n": 2}'],
    )
    assert app.column(SEARCH, ["t"], "{}") == list(reversed(ids))
    assert app.column(SEARCH, ["t"], '{"n": 2}') == [ids[1]]
    assert job_calls.job(app, ids[0])["tags"] == ["t"]


def test_the_labels_of_a_pruned_job_go_with_it(app: Caller, admin: Caller, clock: Clock) -> None:
    submitted = submit(app, ["a"], '{"user": 1}')
    kept = submit(app, ["a"])
    app.execute("select fencepost.job_cancel(%s, 'carol')", submitted)
    clock.advance(60)
    assert app.value("select fencepost.job_prune('1 second', 10)") == 1
    assert app.column(SEARCH, ["a"], "{}") == [kept]
    assert admin.value("select count(*) from fencepost.job_label") == 1


def test_a_job_without_labels_writes_none(app: Caller, admin: Caller) -> None:
    app.execute("select fencepost.job_submit('mail', 'send', '{}')")
    assert admin.value("select count(*) from fencepost.job_label") == 0
