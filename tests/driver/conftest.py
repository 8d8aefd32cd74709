"""The simulated driver, by its own calls and with PyCUDA on it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pycuda_setup
import pytest
from runtime_calls import Runtime

from workbench.driver import Driver, simulated_driver


def pytest_collection_finish(session: pytest.Session) -> None:
    if any("pycuda" in getattr(item, "fixturenames", ()) for item in session.items):
        pycuda_setup.begin()


@pytest.fixture(scope="session")
def driver() -> Driver:
    """The simulated driver in this process, with 64 MiB of memory."""
    return simulated_driver(force=True, memory_bytes=64 << 20)


@pytest.fixture
def cuda(driver: Driver) -> Iterator[ctypes.CDLL]:
    """The library with a context of the test's own current."""
    library = ctypes.CDLL("libcuda.so.1")
    assert library.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert library.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    yield library
    assert library.cuCtxDestroy_v2(context) == 0


@pytest.fixture(scope="session")
def pycuda(driver: Driver):
    """``pycuda.driver``, initialised, on the simulated driver."""
    problem = pycuda_setup.problem()
    if problem is not None:
        if os.environ.get("WORKBENCH_REQUIRE_PYCUDA"):
            pytest.fail(problem)
        pytest.skip(problem)
    import pycuda.driver

    pycuda.driver.init()
    return pycuda.driver


@pytest.fixture
def context(pycuda):
    """A context of the test's own: a fault in it hurts nobody else."""
    made = pycuda.Device(0).make_context()
    yield made
    made.pop()
    made.detach()


@pytest.fixture
def runtime(driver: Driver) -> Iterator[Runtime]:
    """The CUDA runtime, whose device is as new before and after."""
    made = Runtime()
    made.did("cudaDeviceReset")
    yield made
    made.did("cudaDeviceReset")
