"""The judge: runs untrusted programs in sandboxes and records exactly one verdict for each submission."""
