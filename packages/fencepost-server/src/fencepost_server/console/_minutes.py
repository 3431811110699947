"""The call that counts the last minutes for the charts, implemented by `functions/console_minutes.sql`."""

from __future__ import annotations

from fencepost.kernel.call import Call, scalar


def roll(missing: int) -> Call[int]:
    """Count the last minutes; answers how many of the day are still missing."""
    return Call("select fencepost.console_roll(%s::integer)", (missing,), scalar)
