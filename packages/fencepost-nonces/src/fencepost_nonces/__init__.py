"""Nonces: many nodes, one sequence for each signer, and the transactions that are sent with them.

`functions/` guarantees correctness: every write locks the signer's lease and checks owner and token in its
own statement. Everything above it makes that fast (`node.py`, `queue.py`) or useful (`sending/`).
"""
