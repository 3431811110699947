"""The console: pages that show the whole system, and on which an operator decides where one must.

It reads through the read-only role (`_read_pool.py`); its changes go through the same database functions as
the command line. Every page is one function that returns facts; `router.py` serves it as a page, as JSON and
as CSV, after `_auth.py` has authenticated the request.
"""
