"""The taskset as ``verifiers`` imports it, by the name of a module."""

from workbench.service.adapters.verifiers_taskset import KernelTaskset

__all__ = ["KernelTaskset"]
