"""Figures of attention, of quantized numbers, of a model at work, and the roofline."""
