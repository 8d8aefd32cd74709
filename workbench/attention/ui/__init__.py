"""Pictures and views of the running example: caches, attention, quantization, the model."""
