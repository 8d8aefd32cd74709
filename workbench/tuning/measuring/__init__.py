"""Attempts of a tuning run, from a claim in the store to a row: compiled, run, checked, timed, here or by workers.

Begin at `attempt.py`; `measure.py` tries one configuration, `attempts.py` many.
"""
