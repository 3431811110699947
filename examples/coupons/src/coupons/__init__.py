"""Coupons: each is redeemed once."""
