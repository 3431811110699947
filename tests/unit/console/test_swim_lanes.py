import json
from datetime import UTC, datetime, timedelta
from typing import Any

from deploy.refusal_picture import PICTURE, RUN, drawn
from fencepost_server.console._swim_lanes import LANES_MAX, NARROW, draw, short_name

START = datetime(2026, 3, 1, 21, 50, 40, tzinfo=UTC)
A, B = "worker@vm:4021:1710731bef9d", "worker@vm:4023:668a52b16109"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def moment(
    seconds: float, event: str, actor: str | None, token: int | None = None, **detail: Any
) -> dict[str, Any]:
    return {"at": at(seconds), "event": event, "actor": actor, "token": token, "detail": detail}


def refused(seconds: float, reason: str, actor: str, **attempted: Any) -> dict[str, Any]:
    return moment(seconds, f"refused:{reason}", actor, None, attempted=attempted, seen={})


ZOMBIE = [
    moment(0, "submitted", None),
    moment(3.3, "lost", A, 1, claimed_at=at(0).isoformat(), expired_at=at(3).isoformat(), to="pending"),
    moment(3.4, "claimed", B, 2),
    moment(5, "finished", B, 2),
    refused(5.3, "stale_attempt", A, op="renew", owner=A, attempt=1),
]


def test_a_late_write_is_told_with_the_acquisition_that_refused_it() -> None:
    picture = draw(ZOMBIE, at(60))

    assert picture is not None
    (told,) = picture.sentences
    assert told == (
        "worker@vm:4021 (attempt 1) tried to renew at 21:50:45.300 and was refused: stale_attempt;"
        " worker@vm:4023 had finished attempt 2 at 21:50:45.000."
    )


def test_a_refusal_while_the_other_still_holds_it_says_since_when() -> None:
    running = [*ZOMBIE[:3], refused(4, "stale_attempt", A, op="fence", owner=A, attempt=1)]

    picture = draw(running, at(6))

    assert picture is not None
    (told,) = picture.sentences
    assert told == (
        "worker@vm:4021 (attempt 1) tried to write at 21:50:44.000 and was refused: stale_attempt;"
        " worker@vm:4023 had held attempt 2 since 21:50:43.400."
    )


def test_each_owner_has_a_lane_with_its_bars_its_pause_and_its_crosses() -> None:
    picture = draw(ZOMBIE, at(60))

    assert picture is not None
    old, new = picture.lanes
    assert [lane.owner for lane in picture.lanes] == [A, B]
    assert [bar.label for bar in old.bars] == ["attempt 1"]
    assert [bar.ended for bar in new.bars] == ["finished"]
    [(pause_start, pause_end)] = old.pauses
    [cross] = old.marks
    # The pause begins where the lease ended and lasts until the write that came too late.
    assert old.bars[0].x + old.bars[0].width == pause_start
    assert pause_end == cross.x > new.bars[0].x + new.bars[0].width
    assert not new.pauses
    assert not new.marks


def test_what_is_held_lasts_until_now() -> None:
    early, late = draw(ZOMBIE[:3], at(4)), draw(ZOMBIE[:3], at(400))

    assert early is not None
    assert late is not None
    assert late.lanes[1].bars[0].ended == early.lanes[1].bars[0].ended == "held"
    # The picture has one width: what grew is the share of the newest bar.
    assert late.lanes[1].bars[0].width > early.lanes[1].bars[0].width


def test_a_takeover_of_a_lease_ends_the_bar_of_the_owner_before_where_its_lease_ended() -> None:
    life = [
        moment(0, "acquired", A, 4),
        moment(70, "taken_over", B, 5, **{"from": A, "from_token": 4, "expired_at": at(60).isoformat()}),
        moment(80, "held", B, 5, acquired_at=at(70).isoformat()),
        refused(90, "not_owner", "fencepost@vm:1:0123456789ab", op="fence", token=4),
    ]

    picture = draw(life, at(100), "token")

    assert picture is not None
    assert [bar.label for lane in picture.lanes for bar in lane.bars] == ["token 4", "token 5"]
    (told,) = picture.sentences
    assert told == (
        "worker@vm:4021 (token 4) tried to write at 21:52:10.000 and was refused: not_owner;"
        " worker@vm:4023 had held token 5 since 21:51:50.000."
    )


def test_a_history_whose_beginning_was_pruned_still_has_its_bars() -> None:
    picture = draw([moment(9, "failed", A, 7, claimed_at=at(2).isoformat(), to="pending")], at(10))

    assert picture is not None
    [bar] = picture.lanes[0].bars
    assert (bar.label, bar.ended) == ("attempt 7", "failed")
    assert "from 21:50:42.000 to 21:50:49.000" in bar.title


def test_nothing_is_drawn_of_what_was_never_held() -> None:
    assert draw([moment(0, "submitted", None), moment(5, "cancelled", "carol", 0)], at(6)) is None
    assert draw([], at(0)) is None


def test_many_owners_are_counted_and_not_drawn() -> None:
    owners = [
        moment(i, "failed", f"w@h{i}:1:0123456789ab", i + 1, claimed_at=at(i).isoformat()) for i in range(20)
    ]

    picture = draw(owners, at(30))

    assert picture is not None
    assert len(picture.lanes) == LANES_MAX
    assert picture.left_out == 20 - LANES_MAX


def test_a_short_name_leaves_out_the_boot_id_and_nothing_else() -> None:
    assert short_name(A) == "worker@vm:4021"
    assert short_name("a/boot-1") == "a/boot-1"
    assert short_name("host:80") == "host:80"


def test_the_picture_for_a_phone_shows_the_same_within_its_width() -> None:
    wide, narrow = draw(ZOMBIE, at(60)), draw(ZOMBIE, at(60), shape=NARROW)

    assert wide is not None
    assert narrow is not None
    assert narrow.sentences == wide.sentences
    assert narrow.summary == wide.summary
    [cross] = narrow.lanes[0].marks
    assert NARROW.left < cross.x <= NARROW.right < NARROW.width


def test_the_picture_of_the_readme_is_drawn_from_a_real_run() -> None:
    assert PICTURE.read_text("utf-8") == drawn(json.loads(RUN.read_text("utf-8"))), "run `make references`"
    assert "tried to renew at" in PICTURE.read_text("utf-8")
