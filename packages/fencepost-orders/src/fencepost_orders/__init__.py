"""Orders: place an order at a broker once, and know what became of it.

`request.py` defines an order, `_resend.py` decides when it may be sent again, `broker.py` defines what an
adapter
does, and the functions in `functions/` store what happened. A program uses `service.py`.
"""
