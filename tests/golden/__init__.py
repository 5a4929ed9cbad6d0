"""Bytes that must not change unnoticed."""
