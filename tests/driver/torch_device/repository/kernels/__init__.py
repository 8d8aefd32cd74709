"""A small library of kernels, as others write one: what the pytest plugin is tried on."""
