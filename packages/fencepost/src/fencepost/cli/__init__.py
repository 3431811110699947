"""The command line: one module per command. Reading and deciding live in modules that need no terminal."""
