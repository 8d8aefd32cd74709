"""A debug adapter: an editor steps through a kernel by the Debug Adapter Protocol. Begin with `adapter`."""
