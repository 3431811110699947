"""The services over HTTP: one application of all configured services.

A service provides an `HttpService`: its routes, and its background work. This package does what all of them
share: access control (`_security_middleware.py`), the shape of errors (`errors.py`), and the server itself
(`_server.py`).
"""
