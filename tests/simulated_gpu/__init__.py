"""Runs the tests that need a GPU in processes whose torch has a simulated one (`workbench.simulated_gpu`).

A process gets it when ``site/sitecustomize.py`` is on its PYTHONPATH and WORKBENCH_SIMULATED_GPU is set.
"""
