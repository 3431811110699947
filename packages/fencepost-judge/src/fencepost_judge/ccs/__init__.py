"""The Contest API of the ICPC tools (CCS specification, version 2023-06)."""
