"""A Redis Cluster of one node that has every slot.

A plain client works with it, and yet a command or script whose keys lie in two slots is refused: that is the
discipline which a cluster of many nodes asks of our keys.
"""

from pathlib import Path
from typing import Self

from fencepost.embedded import ValkeyServer
from fencepost.embedded._deadline import Deadline
from tests.matrix.ports import free_port

SLOTS = "CLUSTER ADDSLOTSRANGE 0 16383"
SECONDS_MAX = 30


class ClusterNode(ValkeyServer):
    """One node. Its bus needs a port, on loopback; clients come through the socket as usual."""

    def __init__(self, directory: Path, *, ephemeral: bool = False) -> None:
        super().__init__(directory, ephemeral=ephemeral)
        self._port = free_port()

    def start(self) -> Self:
        super().start()
        self._ask(SLOTS)
        Deadline(SECONDS_MAX, "the cluster serves every slot").wait(
            lambda: not self._ask("GET nothing").startswith("-")
        )
        return self

    def _options(self) -> list[str]:
        cluster = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "cluster-enabled": "yes",
            "cluster-port": str(free_port()),
        }
        # The last word of an option wins.
        return [
            *super()._options(),
            *(part for name, value in cluster.items() for part in (f"--{name}", value)),
        ]
