"""The result of a tuning run, its views, and the tuned table that keeps its winners.

Begin at `tuning_result.py`; `run.py` is what `workbench.tune` returns.
"""
