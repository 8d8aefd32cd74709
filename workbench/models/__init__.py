"""Models over the caches and kernels of this package."""
