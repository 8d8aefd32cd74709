"""Strategies of a tuning run: the space of legal configurations, and what to try next.

Knows nothing of devices and of the store; begin at `space.py` and `strategies.py`.
"""
