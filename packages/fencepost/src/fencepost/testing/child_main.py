"""The main module of a `Child`: dies with its parent, loads the target and calls it.

It is run by its path, so that the child pays only for its own imports. Its one argument is a `ChildTask` as
JSON.
"""

import asyncio
import ctypes
import importlib.util
import inspect
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
MODULE = "fencepost_child"


class ChildTask(NamedTuple):
    """A function in a file, or a module to run as a program."""

    parent: int
    place: str
    """The file, or the module when there is no function."""
    function: str | None
    arguments: list[Any]

    @classmethod
    def of(cls, function: Callable[..., object], *arguments: Any) -> "ChildTask":
        """A function at the top level of its file, with arguments that are JSON."""
        file, name = inspect.getsourcefile(function), function.__qualname__
        assert file is not None, f"{name} has no source file that a child could load"
        assert name.isidentifier(), f"{name} must stand at the top of its file, so that a child can find it"
        return cls(os.getpid(), file, name, list(arguments))


def main() -> None:
    """Run the task that the first argument describes, and die with the parent process."""
    task = ChildTask(**json.loads(sys.argv[1]))
    die_with(task.parent)
    if task.function is None:
        sys.argv[1:] = task.arguments
        runpy.run_module(task.place, run_name="__main__", alter_sys=True)
        return
    perform(task)


def perform(task: ChildTask) -> None:
    """Call the function of a file."""
    assert task.function is not None
    result = _load(task.place, task.function)(*task.arguments)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def die_with(parent: int) -> None:
    """SIGKILL reaches a stopped process too. Only Linux supports this; elsewhere the test's `with` ends the
    child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _load(file: str, function: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their own module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    target: Callable[..., Any] = getattr(module, function)
    return target


if __name__ == "__main__":
    main()
