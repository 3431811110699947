"""Reads problems: ICPC packages, simple folders, and the archives that contain them."""
