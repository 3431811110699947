"""The processes of a torture, seen from outside."""

from pathlib import Path

from fencepost.embedded._deadline import Deadline
from fencepost_torture._process_pool import ProcessPool
from fencepost_torture._system_environment import ProcessTask

DEAF = "tests.acceptance.torture.broken:Deaf"


def test_a_caller_that_does_not_end_is_named_and_its_stacks_are_in_the_log(tmp_path: Path) -> None:
    log, there = tmp_path / "processes.log", tmp_path / "there"
    with ProcessPool(log, [DEAF]) as process_pool:
        process = process_pool.start(ProcessTask(DEAF, 0, 1, "", "", str(there), 1.0, {}))
        Deadline(60, "it is there").wait(there.exists)

        late = process_pool.end(within=0.1)

    assert late == [process]
    assert "broken.py" in log.read_text()
    assert "in serve" in log.read_text()
