"""Torture for systems of your own: your processes, your invariants, our faults.

torment("shop.torture:Clicks", seconds=10, seed=7)      raises HistoryBroken when a guarantee is broken, and
                                                        RunTooEasy when the run is below its Floors and
                                                        proves nothing
System                                                  the members that such a class must have
SystemEnvironment, ProcessTask, Account                 what it is given, and what it returns
exactly_once, in_order, linearizable                    checkers
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.testing._errors import HistoryBroken, RunTooEasy
from fencepost.testing._history import BREACHES_SHOWN, Breach
from fencepost_torture._child_setup import PATIENT, told_to_end, until_told_to_end
from fencepost_torture._effects import exactly_once, in_order
from fencepost_torture._linearizability import Model, linearizable, linearize
from fencepost_torture._operation_log import Operation, OperationLog
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._schedule import chosen_kinds
from fencepost_torture._system_environment import Account, ProcessTask, System, SystemEnvironment
from fencepost_torture._verdict import Floors
from fencepost_torture._wall_clocks import choose_clocks

__all__ = [
    "PATIENT",
    "Account",
    "Breach",
    "Floors",
    "Model",
    "Operation",
    "OperationLog",
    "ProcessTask",
    "RunResult",
    "RunTooEasy",
    "System",
    "SystemEnvironment",
    "exactly_once",
    "in_order",
    "linearizable",
    "linearize",
    "told_to_end",
    "torment",
    "until_told_to_end",
]

FLOORS = Floors()


def torment(
    *systems: str,
    seconds: float,
    seed: int = 1,
    faults: Sequence[str] = (),
    floors: Floors = FLOORS,
) -> RunResult:
    """Torture systems, given by name or as `module:class`, in a test. A full disk is left out.

    A run below the floors has proved nothing, so it raises RunTooEasy: a test must not pass on it.
    """
    faketime, kinds = choose_clocks([kind for kind in chosen_kinds(faults) if kind != "disk-full"])
    outcome = TortureRun(RunPlan(seed, seconds, systems, kinds, floors=floors), faketime=faketime).run()
    found = outcome.judgement.breaches
    if found:
        shown = "\n".join(f"  {system}: {breach}" for system, breach in found[:BREACHES_SHOWN])
        raise HistoryBroken(f"{len(found)} breaches, seed {seed}:\n{shown}\n{outcome.log}")
    if outcome.judgement.verdict == "void":
        why = "\n".join(f"  {reason}" for reason in outcome.judgement.too_easy)
        raise RunTooEasy(f"Nothing was broken and nothing was proved, seed {seed}:\n{why}")
    return outcome
