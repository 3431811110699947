"""The address of a Redis Cluster, and where its commands go."""

import pytest
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost._cluster_url import ClusterUrl, speaks_of_a_cluster
from fencepost.errors import SettingsError
from fencepost.redis_streams._slots import STEPS_MAX, Route, SlotMap, slot_of, slot_of_command
from fencepost.settings import Settings

ONE, TWO = ("one", 1), ("two", 2)
SLOTS = [[0, 8191, [b"one", 1, b"id"]], [8192, 16383, ["two", 2, "id"], ["", 3, "id"]]]


def test_the_shortest_form() -> None:
    assert ClusterUrl.read("redis+cluster://cache") == ClusterUrl((("cache", 6379),), tls=False, login={})


def test_everything_that_can_be_said() -> None:
    url = ClusterUrl.read("rediss+cluster://app:p%40ss@one:1,[::1]:2,three/")

    assert url.nodes == (("one", 1), ("::1", 2), ("three", 6379))
    assert (url.tls, url.login) == (True, {"username": "app", "password": "p@ss"})
    assert "p@ss" not in repr(url)


@pytest.mark.parametrize(
    "wrong",
    [
        "redis+cluster://",
        "redis+cluster://cache,",
        "redis+cluster://:s3cret@cache/4",
        "redis+cluster://cache:s3cret",
        "redis+cluster://cache:99999",
        "redis+cluster://cache?db=1",
    ],
)
def test_what_is_wrong_is_refused_without_being_quoted(wrong: str) -> None:
    assert speaks_of_a_cluster(wrong)
    with pytest.raises(SettingsError, match=r"redis\+cluster://host:6379,host:6379") as caught:
        Settings.load({"REDIS_URL": wrong})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", "a"), "a"),
        (("XINFO STREAM", "a"), "a"),
        (("xreadgroup", "GROUP", "g", "c", "COUNT", 1, b"STREAMS", "{a}:1", "{a}:2", ">", ">"), "a"),
        (("XREAD", "BLOCK", 1, "STREAMS", b"a", "0"), "a"),
        (("EVALSHA", "sha", 2, "{a}:1", "{a}:2", "x"), "a"),
        (("SET", b"{a}", "1"), "a"),
    ],
)
def test_a_command_goes_to_the_slot_of_its_first_key(command: tuple[object, ...], key: str) -> None:
    assert slot_of_command(command) == slot_of(key)


@pytest.mark.parametrize(
    "command", [("PING",), ("CONFIG GET", "x"), ("INFO", "clients"), ("EVAL", "return 1", 0)]
)
def test_a_command_without_keys_goes_to_any_node(command: tuple[object, ...]) -> None:
    assert slot_of_command(command) is None


def known() -> SlotMap:
    slots = SlotMap([ONE])
    assert slots.must_be_read()
    assert slots.learn(SLOTS, ONE)
    return slots


def test_the_map_knows_primaries_and_asks_replicas_too() -> None:
    slots = known()
    assert (slots.primary_of(0), slots.primary_of(8192)) == (ONE, TWO)
    assert slots.primaries == [ONE, TWO]
    assert slots.everyone == [ONE, TWO, ("one", 3)]
    assert not slots.must_be_read()


def test_a_node_that_knows_no_slots_teaches_nothing() -> None:
    slots = SlotMap([ONE])
    assert not slots.learn([], ONE)
    assert slots.must_be_read()
    with pytest.raises(RedisConnectionError, match="slot 5"):
        slots.primary_of(5)


def test_a_moved_slot_stays_moved_and_an_asked_one_is_asked_once() -> None:
    slots = known()
    route = Route(slots, 0)
    assert route.follow(AskError("0 three:3")) == 0
    assert (route.target, route.is_asking) == (("three", 3), True)
    assert route.follow(TryAgainError("later")) > 0
    assert (route.target, route.is_asking) == (ONE, False)
    route.follow(MovedError("0 :4"))
    # Without a host it is the node's own.
    assert (route.target, slots.primary_of(0)) == (("one", 4), ("one", 4))


def test_a_route_has_an_end() -> None:
    slots = known()
    route = Route(slots, 0)
    for _ in range(STEPS_MAX):
        route.follow(TryAgainError("later"))
    with pytest.raises(RedisConnectionError, match="still moving"):
        route.follow(TryAgainError("later"))
    assert slots.must_be_read()


def test_a_cluster_that_is_down_is_an_error_of_the_connection() -> None:
    slots = known()
    with pytest.raises(RedisConnectionError, match="does not serve"):
        Route(slots, 0).follow(ClusterDownError("down"))
    assert slots.must_be_read()
