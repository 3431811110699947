"""What pgbench says is read, or refused."""

import pytest

from bench.pgbench import PgbenchError, read_rate

DONE = "number of transactions actually processed: 400/400\n"
RATE = "tps = 1234.500000 (without initial connection time)\n"


def test_the_rate_is_read_without_the_time_to_connect() -> None:
    assert read_rate(0, DONE + RATE, "") == pytest.approx(1234.5)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        pytest.param(2, DONE + RATE, id="it failed"),
        pytest.param(0, "number of transactions actually processed: 399/400\n" + RATE, id="it ended early"),
        pytest.param(0, DONE, id="it gave no rate"),
    ],
)
def test_a_run_that_did_not_do_all_its_work_has_no_rate(code: int, output: str) -> None:
    with pytest.raises(PgbenchError, match="the reason"):
        read_rate(code, output, "the reason")
