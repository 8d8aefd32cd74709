"""Judge of solutions in KernelBench's format: ``ModelNew`` beside a problem's ``Model``, without a GPU.

A problem's file defines ``Model``, ``get_inputs`` and ``get_init_inputs``; it is trusted, and only this process reads
it. The solution's file runs in a process of its own, on torch's simulated device with every launch checked. It gets the
weights and the inputs, one call at a time, and returns bytes: the reference's results never exist in its process, and
nothing in that process compares.
"""
