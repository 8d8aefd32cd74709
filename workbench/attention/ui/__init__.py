"""Plots and interactive views of the running example: caches, attention, quantization and the model."""
