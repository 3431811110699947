"""Runs one untrusted program: `box/` is the C program, the modules beside it control it."""
