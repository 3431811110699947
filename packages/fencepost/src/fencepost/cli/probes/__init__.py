"""The probes of `doctor`: one module per part of the machine, each returning findings."""
