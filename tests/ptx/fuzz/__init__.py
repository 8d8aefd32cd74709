"""Random programs for the PTX machine: kernels, instructions and planted races."""
