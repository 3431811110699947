"""The console: pages on which a person sees everything, and decides where a person must.

It reads through the read-only role (`reading.py`), and whatever it changes goes through the same functions of
the database as the command line. Every page is one function that answers facts; `desk.py` gives it out as a
page, as JSON and as CSV, and asks `doors.py` first who is there.
"""
