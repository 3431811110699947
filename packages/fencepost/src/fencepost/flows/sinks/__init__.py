"""Sinks: where the effects of a flow happen, each with the guarantee that it declares."""
