"""Tests of HTTP and of adapters need the extra ``serve``; those of the queue and of the stages do not."""

from importlib.util import find_spec

_NEEDED = ("fastapi", "httpx", "prometheus_client", "uvicorn")

collect_ignore = [] if all(map(find_spec, _NEEDED)) else ["test_adapters.py", "test_http.py", "test_killed_server.py"]
