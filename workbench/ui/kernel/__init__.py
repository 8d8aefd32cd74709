"""Pictures of a launch over time: warps that wait for each other, blocks on multiprocessors."""
