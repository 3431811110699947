"""Webhooks. A receiver verifies a request with `verify`:

from fencepost.webhooks import HEADER, InvalidSignature, verify

verify(raw_body, headers.get(HEADER), os.environ["WEBHOOK_SECRET"])     # raises InvalidSignature
"""

from fencepost.webhooks._signature import HEADER, TOLERANCE_SECONDS, InvalidSignature, sign, verify

__all__ = ["HEADER", "TOLERANCE_SECONDS", "InvalidSignature", "sign", "verify"]
