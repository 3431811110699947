"""The three standard files of a program in a box, as descriptors, and the folder in which they are opened."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fencepost.logs import get_logger

_log = get_logger(__name__)
FOLDER_SECONDS = 30


@dataclass(slots=True)
class BoxFiles:
    """Descriptors that the caller owns.

    `pipes` says that stdin and stdout lead to another program. They are closed as soon as the box has them:
    while this process held an end, the other program would never see the end of file.
    """

    stdin: int
    stdout: int
    stderr: int
    pipes: bool = False

    def all(self) -> list[int]:
        return [self.stdin, self.stdout, self.stderr]

    def hand_over(self) -> None:
        """Close the pipes: the box has its own copies now. Can be repeated."""
        if self.pipes and self.stdin >= 0:
            os.close(self.stdin)
            os.close(self.stdout)
            self.stdin = self.stdout = -1


@contextmanager
def nothing_and_nowhere() -> Generator[BoxFiles]:
    """Empty input, and output that is discarded."""
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield BoxFiles(descriptor, descriptor, descriptor)
    finally:
        os.close(descriptor)


def open_folder(folder: Path, box: Path | None) -> int:
    """The folder as a descriptor to open files by that programs get.

    By fencepost-box it is apart from its place on the machine: /proc/self/fd tells a program the path of its
    standard files, which then begins at this folder.
    """
    if box is not None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            command = [str(box), "folder", f"client={theirs.fileno()}", f"workspace={folder}"]
            done = subprocess.run(
                command, pass_fds=[theirs.fileno()], timeout=FOLDER_SECONDS, check=False, env={}
            )
            if done.returncode == 0:
                return socket.recv_fds(ours, 1, 1)[1][0]
        _log.warning(
            "judge_folder_visible",
            meaning="programs can read the path of the workspace on this machine from /proc/self/fd",
            remedy="Allow open_tree (Linux 5.2), and user namespaces where the judge is not root.",
        )
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
