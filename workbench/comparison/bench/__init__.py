"""Benchmarks of an op's kernels beside torch, on its cases and over sizes of one.

Begin at `own_op.py` and `sizes.py`.
"""
