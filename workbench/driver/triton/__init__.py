"""Triton's driver over the machine: launches of `@triton.jit` functions, autotuning, timing.

Begin at `driver.py`; `session.py` holds what one program's launches share.
"""
