"""The judge: programs that nobody trusts, run in boxes, judged once."""
