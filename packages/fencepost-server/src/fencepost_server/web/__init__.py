"""The services over HTTP: one application, whatever services it is made of.

A service brings a `Part`: its routes, and what runs beside them. This package does for all of them what none
should do alone: who may come in (`guard.py`), what an error looks like (`answers.py`), and the server itself
(`server.py`).
"""
