"""How long to wait: what a header says, in either form."""

from datetime import UTC, datetime

from fencepost.outbox.backoff import retry_after_seconds

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_a_date_without_a_zone_is_of_the_world() -> None:
    assert retry_after_seconds("Tue, 01 Jan 2030 12:00:30 -0000", NOW) == 30
    assert retry_after_seconds("Tue, 01 Jan 2030 12:00:30 GMT", NOW) == 30
    assert retry_after_seconds("Tue, 01 Jan 2030 11:00:00 GMT", NOW) == 0
    assert retry_after_seconds("soon", NOW) is None
