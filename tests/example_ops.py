"""The running example's ops by name."""

from workbench.ops import registry

OPS = {name: registry.get(name) for name in registry.offered()}
