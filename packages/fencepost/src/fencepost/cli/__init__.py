"""The command line. One module a command; what it reads and decides lies beside it and needs no terminal."""
