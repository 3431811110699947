"""The command `fencepost judge`, one module a group of its commands."""
