"""For tests of what sends transactions: one URL over chain backends that lag, lose replies and contradict
each other."""

from fencepost_nonces.testing._rpc_proxy import RpcProxy, Unevenness

__all__ = ["RpcProxy", "Unevenness"]
