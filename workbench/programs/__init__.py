"""``workbench run``: unchanged programs, in Python or CUDA C++, run on the simulated devices, checked and traced."""
