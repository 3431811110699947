"""A foreign server program for a test, on ports of ours."""

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from fencepost.embedded._deadline import Deadline

STARTS = 3
START_SECONDS = 60


class ServerProcess(Protocol):
    @property
    def process(self) -> subprocess.Popen[bytes]: ...

    def is_up(self) -> bool: ...

    def stop(self) -> None: ...


H = TypeVar("H", bound=ServerProcess)


@contextmanager
def hired_server(folder: Path, launch: Callable[[Path], H], seconds: float = START_SECONDS) -> Generator[H]:
    """`launch` starts one in a new folder, and logs to the file `log` there.

    Its ports are chosen before it has them, so that another process may be faster: then it is started again.
    """
    said = ""
    for start in range(STARTS):
        place = folder / f"start-{start}"
        place.mkdir(parents=True)
        server = launch(place)
        try:
            if _answers(server, seconds):
                yield server
                return
        finally:
            server.stop()
        said = (place / "log").read_text()[-2000:]
    raise AssertionError(said)


def _answers(server: ServerProcess, seconds: float) -> bool:
    def settled() -> bool:
        return server.process.poll() is not None or server.is_up()

    try:
        Deadline(seconds, "the server answers, or is gone").wait(settled)
    except TimeoutError:
        return False
    return server.process.poll() is None
