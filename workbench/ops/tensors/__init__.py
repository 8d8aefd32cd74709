"""Tensors of a run: their types, what fills them, how they lie in memory, and checks of all three.

No module here knows of an op. Begin with `run_tensors`, what a variant gets.
"""
