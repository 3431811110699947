"""Asks a system for work: a thread that keeps it supplied, and never floods it."""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Mapping

from fencepost_torture._pace import OPEN_MAX
from fencepost_torture._system_environment import Account, System, SystemEnvironment

LOOK_SECONDS = 0.05
LOOK_SECONDS_MAX = 0.5
LOOKS_MAX = 0.1
"""The share of its time that it spends reading the account: frequent reads must not slow down the work."""
REFUSALS_SECONDS = 1.0


class LoadGenerator:
    """Asks for work until it is stopped; `account` is the last one it read."""

    def __init__(
        self,
        system: System,
        env: SystemEnvironment,
        *,
        open_max: int = OPEN_MAX,
        helpings_per_second: float = math.inf,
    ) -> None:
        self.account = Account(0, 0)
        self.refusals: Mapping[str, int] = {}
        self.failure: str | None = None
        self._system = system
        self._env = env
        self._open_max = open_max
        self._helping_seconds = 1 / helpings_per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"torture-{system.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the current batch: a batch is asked for as a whole."""
        self._stopping.set()

    @property
    def is_asking(self) -> bool:
        """Whether a batch may still be asked for."""
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    def look(self) -> Account:
        self.account = self._system.account(self._env)
        return self.account

    def look_at_refusals(self) -> Mapping[str, int]:
        rows = self._env.rows("select reason, refused from fencepost.refusal_status where refused > 0")
        self.refusals = {reason: int(refused) for reason, refused in rows}
        return self.refusals

    def _run(self) -> None:
        turn, looked = 0, 0.0
        try:
            while not self._stopping.is_set():
                if time.monotonic() - looked > REFUSALS_SECONDS:
                    looked = time.monotonic()
                    self.look_at_refusals()
                began = time.monotonic()
                account = self.look()
                took = time.monotonic() - began
                if account.open < self._open_max:
                    self._system.ask(self._env, turn)
                    turn += 1
                    self._stopping.wait(began + self._helping_seconds - time.monotonic())
                else:
                    self._stopping.wait(min(LOOK_SECONDS_MAX, max(LOOK_SECONDS, took / LOOKS_MAX)))
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self._env.hang_up()
