"""cuBLAS and cuRAND over the host: every routine's numbers, and what each library exports, NCCL too."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.driver.elf import read_elf
from workbench.driver.library_files import library_path, runtime_path
from workbench.toolchain import tools

CALLS = Path(__file__).with_name("blas_calls.py")
OFTEN = ("products", "types", "lt_matmul", "captured", "unwritten", "wrong")
LONG = ("batches", "vectors", "matrices_and_vectors", "symmetric_and_triangular")
XORWOW, MRG32K3A, MT19937, PHILOX = 101, 121, 142, 161


@pytest.mark.parametrize("parts", [OFTEN, pytest.param(LONG, marks=pytest.mark.long)], ids=["often", "long"])
def test_calls_of_cublas_are_numpys(parts):
    done = subprocess.run([sys.executable, CALLS, *parts], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == list(parts)


@pytest.mark.parametrize("name", ["libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10", "libnccl.so.2"])
def test_it_exports_what_the_real_library_does(name):
    real = tools.find_library(re.escape(name))
    if real is None:
        pytest.skip(f"{name} of NVIDIA's is not installed")
    names = {one for one in read_elf(real).defined if one.startswith(("cublas", "curand", "nccl"))}
    assert len(names) > 20
    assert names - read_elf(runtime_path().with_name(name)).defined == set()


# ---- cuRAND's generators for the host, which need no device ----


class Generator:
    def __init__(self, library, kind, seed=0, offset=0):
        self.library, self.handle = library, ctypes.c_void_p()
        assert library.curandCreateGeneratorHost(ctypes.byref(self.handle), kind) == 0
        assert library.curandSetPseudoRandomGeneratorSeed(self.handle, ctypes.c_ulonglong(seed)) == 0
        assert library.curandSetGeneratorOffset(self.handle, ctypes.c_ulonglong(offset)) == 0

    def __call__(self, what, dtype, count, *arguments):
        out = np.zeros(count, dtype)
        call = getattr(self.library, f"curandGenerate{what}")
        assert call(self.handle, ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(count), *arguments) == 0
        return out


@pytest.fixture(scope="module")
def curand():
    for path in (library_path(), runtime_path()):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(runtime_path().with_name("libcurand.so.10")))


def philox(counter: int, lane: int, seed: int) -> list[int]:
    """Philox4x32-10 as its authors describe it."""
    words, keys = [counter & 0xFFFFFFFF, counter >> 32, lane, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            second >> 32 ^ words[1] ^ keys[0], second & 0xFFFFFFFF,
            first >> 32 ^ words[3] ^ keys[1], first & 0xFFFFFFFF,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words


@pytest.mark.parametrize("seed", [0, 0x123456789ABCDEF])
def test_philox_deals_four_numbers_to_each_of_65536_lanes(curand, seed):
    numbers = Generator(curand, PHILOX, seed)("", np.uint32, 4 * 65536 + 8)
    if seed == 0:  # the known answer of Random123
        assert numbers[:4].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    for lane, counter, at in ((0, 0, 0), (7, 0, 28), (65535, 0, 4 * 65535), (0, 1, 4 * 65536), (1, 1, 4 * 65536 + 4)):
        assert numbers[at : at + 4].tolist() == philox(counter, lane, seed)


def test_mt19937_is_the_standard_one(curand):
    assert Generator(curand, MT19937, 5489)("", np.uint32, 10000)[-1] == 4123659995  # of the C++ standard


KINDS = (XORWOW, MRG32K3A, MT19937, PHILOX)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_is_the_same_in_parts_and_from_an_offset(curand, kind):
    whole, parts = Generator(curand, kind, 7), Generator(curand, kind, 7)
    numbers = whole("", np.uint32, 9000)
    assert (np.concatenate([parts("", np.uint32, count) for count in (1, 3, 4096, 4900)]) == numbers).all()
    assert (Generator(curand, kind, 7, 4099)("", np.uint32, 500) == numbers[4099:4599]).all()
    assert (Generator(curand, kind, 8)("", np.uint32, 500) != numbers[:500]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_distributions_have_their_moments(curand, kind):
    count, f, d = 40000, ctypes.c_float, ctypes.c_double
    bound = 5 / count**0.5
    for what, dtype, arguments, mean, deviation in (
        ("Uniform", np.float32, (), 0.5, 12**-0.5), ("UniformDouble", np.float64, (), 0.5, 12**-0.5),
        ("Normal", np.float32, (f(3), f(2)), 3, 2), ("NormalDouble", np.float64, (d(3), d(2)), 3, 2),
        ("Poisson", np.uint32, (d(2.5),), 2.5, 2.5**0.5), ("Poisson", np.uint32, (d(400),), 400, 20),
    ):  # fmt: skip
        values = Generator(curand, kind, 11)(what, dtype, count, *arguments).astype(np.float64)
        assert abs(values.mean() - mean) < bound * deviation, what
        assert abs(values.std() - deviation) < bound * deviation, what
        if what.startswith("Uniform"):
            assert values.min() > 0
            assert values.max() <= 1
        if what.startswith("Normal"):
            logs = Generator(curand, kind, 11)("Log" + what, dtype, count, *arguments)
            assert np.allclose(np.log(logs), values, atol=1e-4)
            assert abs(np.corrcoef(values[::2], values[1::2])[0, 1]) < bound


def test_what_curand_has_not_is_refused(curand):
    handle = ctypes.c_void_p()
    for kind, status in ((141, 103), (201, 103), (7, 103)):
        assert curand.curandCreateGeneratorHost(ctypes.byref(handle), kind) == status
    assert curand.curandDestroyGenerator(None) == 101
    made = Generator(curand, PHILOX)
    assert curand.curandGenerateLongLong(made.handle, None, ctypes.c_size_t(1)) == 103
    assert curand.curandSetGeneratorOrdering(made.handle, 201) == 104


SAME = (
    ("", np.uint32, (), 0), ("Uniform", np.float32, (), 1e-7), ("UniformDouble", np.float64, (), 3e-10),
    ("Normal", np.float32, (ctypes.c_float(1), ctypes.c_float(2)), 2e-5),
    ("NormalDouble", np.float64, (ctypes.c_double(1), ctypes.c_double(2)), 1e-6),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", [XORWOW, MRG32K3A, PHILOX])
def test_sequences_are_those_of_the_real_library(curand, kind):
    """NVIDIA's own library makes numbers on the host without a GPU: pip install nvidia-curand."""
    real = tools.find_library(r"libcurand\.so\.10")
    if real is None:
        pytest.skip("nvidia-curand is not installed")
    theirs = ctypes.CDLL(str(real))
    for what, dtype, arguments, bound in SAME:
        for seed, offset in ((0, 0), (7, 10**6 + 2), (2**63 + 12345, 10**13)):
            for count in (1000, 300000):
                ours, wanted = (
                    Generator(one, kind, seed, offset)(what, dtype, count, *arguments).astype(np.float64)
                    for one in (curand, theirs)
                )
                assert np.abs(ours - wanted).max() <= bound, (what, seed, offset, count)
