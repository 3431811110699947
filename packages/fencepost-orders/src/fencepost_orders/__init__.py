"""Orders: place an order at a broker once, and know what became of it.

`request.py` says what an order is, `resend.py` when it may be sent again, `broker.py` what an adapter does,
and the functions in `functions/` keep what happened. `service.py` is what a program uses.
"""
