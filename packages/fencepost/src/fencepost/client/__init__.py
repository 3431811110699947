"""The client: the class `Fencepost`, and one module for each of its namespaces."""

from fencepost.client._fencepost import Fencepost, SyncFencepost

__all__ = ["Fencepost", "SyncFencepost"]
