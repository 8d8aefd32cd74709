"""Pictures of a launch over time: pipelines, warps that wait at barriers, and blocks on multiprocessors."""
