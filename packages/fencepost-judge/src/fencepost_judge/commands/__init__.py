"""The command `fencepost judge`: one module per group of commands."""
