"""Reading problems: ICPC packages, simple folders, and the archives that they come in."""
