"""Figures of attention, of quantized numbers and of a running model."""
