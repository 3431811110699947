"""The commands `fencepost nonces` and `fencepost tx`."""
