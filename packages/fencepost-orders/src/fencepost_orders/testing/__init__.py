"""A hostile broker, for the tests of orders."""
