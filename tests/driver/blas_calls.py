"""Calls of cuBLAS through ctypes, each compared with NumPy: a process of its own, as it has one driver."""

from __future__ import annotations

import ctypes
import itertools
import sys

import numpy as np

import workbench as wb

driver = wb.simulated_driver()
from workbench.analysis.device_models import device_model  # noqa: E402
from workbench.analysis.launches import Launches  # noqa: E402
from workbench.analysis.watching import Watch, watch  # noqa: E402
from workbench.driver.clients.host_programs import load_libraries  # noqa: E402
from workbench.driver.library_files import library_path, runtime_path  # noqa: E402

load_libraries()
runtime = ctypes.CDLL(str(runtime_path()))
cublas = ctypes.CDLL(str(runtime_path().with_name("libcublas.so.13")))
lt = ctypes.CDLL(str(runtime_path().with_name("libcublasLt.so.13")))
rng = np.random.default_rng(0)
DTYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
OPS = {0: lambda a: a, 1: lambda a: a.T, 2: lambda a: a.conj().T}
HOST, DEVICE = 0, 1
size = ctypes.c_size_t


def real(dtype):
    return np.zeros(0, dtype).real.dtype


def made(dtype, *shape):
    values = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


class Array:
    """An array on the device, in an allocation of just its bytes."""

    def __init__(self, values):
        self.values = np.array(values, order="F")
        self.address = ctypes.c_void_p()
        assert runtime.cudaMalloc(ctypes.byref(self.address), size(self.values.nbytes)) == 0
        self.move(self.address, ctypes.c_void_p(self.values.ctypes.data), 1)

    def move(self, to, start, kind):
        assert runtime.cudaMemcpy(to, start, size(self.values.nbytes), kind) == 0

    def get(self):
        self.move(ctypes.c_void_p(self.values.ctypes.data), self.address, 2)
        return self.values.copy(order="K")


class Host:
    """A number or array on the host, as scalars are in host pointer mode."""

    def __init__(self, values):
        self.values = np.array(values)
        self.address = ctypes.c_void_p(self.values.ctypes.data)

    def get(self):
        return self.values


handle = ctypes.c_void_p()
assert cublas.cublasCreate_v2(ctypes.byref(handle)) == 0


def call(name, *arguments, status=0, wide=False):
    """Call a routine with handle, integers and arrays; ``wide`` is the 64-bit one."""
    integer = ctypes.c_int64 if wide else ctypes.c_int
    words = [
        one.address if hasattr(one, "address") else one if not isinstance(one, int) else integer(one)
        for one in arguments
    ]
    got = getattr(cublas, f"cublas{name}" + "_64" * wide)(handle, *words)
    assert got == status, (name, got, driver.last_error)


def padded(matrix, extra):
    """The matrix with ``extra`` rows below it, and its leading dimension."""
    rows, columns = matrix.shape
    room = np.full((rows + extra, columns), 77, matrix.dtype, order="F")
    room[:rows] = matrix
    return room, rows + extra


def close(got, wanted, dtype, what):
    bound = {np.float32: 2e-5, np.complex64: 2e-5, np.float16: 2e-3, np.int32: 0}.get(np.dtype(dtype).type, 1e-12)
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    assert np.abs(got - wanted).max(initial=0) <= bound * scale, (what, got, wanted)


def products():
    for (letter, dtype), op_a, op_b, mode, wide in itertools.product(
        DTYPES.items(), OPS, OPS, (HOST, DEVICE), (False, True)
    ):
        m, n, k = 5, 3, 4
        scalar = Host if mode == HOST else Array
        assert cublas.cublasSetPointerMode_v2(handle, mode) == 0
        a, b, c = (made(dtype, *shape) for shape in (((m, k), (k, m))[op_a > 0], ((k, n), (n, k))[op_b > 0], (m, n)))
        alpha, beta = made(dtype, 1), made(dtype, 1)
        (ra, lda), (rb, ldb), (rc, ldc) = padded(a, 2), padded(b, 0), padded(c, 1)
        out = Array(rc)
        given = (scalar(alpha), Array(ra), lda, Array(rb), ldb, scalar(beta), out, ldc)
        call(f"{letter}gemm_v2", ctypes.c_int(op_a), ctypes.c_int(op_b), m, n, k, *given, wide=wide)
        got = out.get()
        close(got[:m], alpha * (OPS[op_a](a) @ OPS[op_b](b)) + beta * c, dtype, (letter, op_a, op_b, mode))
        assert (got[m:] == 77).all()
    cublas.cublasSetPointerMode_v2(handle, HOST)


def batches():
    m, n, k, count = 3, 4, 5, 3
    for letter, dtype in DTYPES.items():
        a, b = made(dtype, count, k, m), made(dtype, count, n, k)  # by columns: a[i].T is the matrix
        one, zero = Host(np.ones(1, dtype)), Host(np.zeros(1, dtype))
        wanted = np.stack([(a[i].T @ b[i].T).T for i in range(count)])
        out, da, db = Array(np.zeros((count, n, m), dtype).T), Array(a.T), Array(b.T)
        strides = [ctypes.c_longlong(stride) for stride in (m * k, k * n, m * n)]
        given = (one, da, m, strides[0], db, k, strides[1], zero, out, m, strides[2], count)
        call(f"{letter}gemmStridedBatched", 0, 0, m, n, k, *given)
        close(out.get().T, wanted, dtype, "strided")
        outs = [Array(np.full((m, n), np.nan, dtype)) for _ in range(count)]
        tables = [
            Array(np.array([one.address.value for one in rows], np.uint64))
            for rows in ([Array(x.T) for x in a], [Array(x.T) for x in b], outs)
        ]
        call(f"{letter}gemmBatched", 0, 0, m, n, k, one, tables[0], m, tables[1], k, zero, tables[2], m, count)
        close(np.stack([x.get().T for x in outs]), wanted, dtype, "batched")
        square, right = made(dtype, 4, 4), made(dtype, 4, 2)
        dense, sides, pivots, info = (
            Array(square),
            Array(right),
            Array(np.zeros(4, np.int32)),
            Array(np.zeros(1, np.int32)),
        )
        table, side_table = (Array(np.array([x.address.value], np.uint64)) for x in (dense, sides))
        call(f"{letter}getrfBatched", 4, table, 4, pivots, info, 1)
        state = Host(np.full(1, 9, np.int32))
        call(f"{letter}getrsBatched", 0, 4, 2, table, 4, pivots, side_table, 4, state, 1)
        assert state.get()[0] == info.get()[0] == 0
        close(square @ sides.get(), right, np.float32, "getrs")


def triangle(a, uplo, unit):
    part = np.triu(a) if uplo else np.tril(a)
    if unit:
        np.fill_diagonal(part, 1)
    return part


def band(a, kl, ku):
    m, n = a.shape
    room = np.full((kl + ku + 1, n), 55, a.dtype, order="F")
    inside = np.zeros_like(a)
    for j in range(n):
        for i in range(max(0, j - ku), min(m, j + kl + 1)):
            room[ku + i - j, j] = inside[i, j] = a[i, j]
    return room, inside


def matrices_and_vectors():
    m, n = 5, 4
    for letter, dtype in DTYPES.items():
        alpha, beta = made(dtype, 1), made(dtype, 1)
        symmetric = "hemv" if letter in "CZ" else "symv"
        for op in OPS:
            a, x, y = made(dtype, m, n), made(dtype, 9), made(dtype, 9)
            count_x, count_y = (n, m) if op == 0 else (m, n)
            dx, dy = Array(x[: 2 * count_x - 1]), Array(y[:count_y])  # increments 2 and -1
            call(f"{letter}gemv_v2", op, m, n, Host(alpha), Array(a), m, dx, 2, Host(beta), dy, -1)
            wanted = alpha * (OPS[op](a) @ x[: 2 * count_x : 2]) + beta * y[:count_y][::-1]
            close(dy.get()[::-1], wanted, dtype, "gemv")
            room, inside = band(a, 1, 2)
            dy = Array(y[:count_y])
            call(
                f"{letter}gbmv_v2",
                op,
                m,
                n,
                1,
                2,
                Host(alpha),
                Array(room),
                4,
                Array(x[:count_x]),
                1,
                Host(beta),
                dy,
                1,
            )
            close(dy.get(), alpha * (OPS[op](inside) @ x[:count_x]) + beta * y[:count_y], dtype, "gbmv")
            for uplo, unit in itertools.product((0, 1), (0, 1)):
                square = made(dtype, n, n) + 3 * np.eye(n, dtype=dtype)
                part = OPS[op](triangle(square, uplo, unit))
                dx = Array(x[:n])
                call(f"{letter}trmv_v2", uplo, op, unit, n, Array(square), n, dx, 1)
                close(dx.get(), part @ x[:n], dtype, "trmv")
                call(f"{letter}trsv_v2", uplo, op, unit, n, Array(square), n, dx, 1)
                close(dx.get(), x[:n], np.float32, "trsv")
                packed = square.T[np.tril_indices(n)] if uplo else square.T[np.triu_indices(n)]
                dx = Array(x[:n])
                call(f"{letter}tpmv_v2", uplo, op, unit, n, Array(packed), dx, 1)
                close(dx.get(), part @ x[:n], dtype, "tpmv")
        for uplo in (0, 1):
            square, x, y = made(dtype, n, n), made(dtype, n), made(dtype, n)
            part = triangle(square, uplo, False)
            other = part.conj().T if symmetric == "hemv" else part.T
            whole = part + other
            np.fill_diagonal(whole, square.diagonal().real if symmetric == "hemv" else square.diagonal())
            dy = Array(y)
            call(f"{letter}{symmetric}_v2", uplo, n, Host(alpha), Array(square), n, Array(x), 1, Host(beta), dy, 1)
            close(dy.get(), alpha * (whole @ x) + beta * y, dtype, symmetric)
            out = Array(square)
            call(f"{letter}syr_v2", uplo, n, Host(alpha), Array(x), 1, out, n)
            close(out.get(), square + alpha * triangle(np.outer(x, x), uplo, False), dtype, "syr")
        x, y, a = made(dtype, m), made(dtype, n), made(dtype, m, n)
        for name, other in (("geru", y), ("gerc", y.conj())) if letter in "CZ" else (("ger", y),):
            out = Array(a)
            call(f"{letter}{name}_v2", m, n, Host(alpha), Array(x), 1, Array(y), 1, out, m)
            close(out.get(), a + alpha * np.outer(x, other), dtype, name)


def symmetric_and_triangular():
    m, n, k = 4, 3, 5
    for letter, dtype in DTYPES.items():
        alpha, beta = made(dtype, 1), made(dtype, 1)
        for side, uplo, op, unit in itertools.product((0, 1), (0, 1), OPS, (0, 1)):
            order = n if side else m
            square = made(dtype, order, order) + 4 * np.eye(order, dtype=dtype)
            b, part = made(dtype, m, n), OPS[op](triangle(square, uplo, unit))
            wanted = alpha * (b @ part if side else part @ b)
            out = Array(np.full((m + 1, n), 77, dtype))
            call(
                f"{letter}trmm_v2",
                side,
                uplo,
                op,
                unit,
                m,
                n,
                Host(alpha),
                Array(square),
                order,
                Array(b),
                m,
                out,
                m + 1,
            )
            close(out.get()[:m], wanted, dtype, "trmm")
            back = Array(b)
            call(f"{letter}trsm_v2", side, uplo, op, unit, m, n, Host(alpha), Array(square), order, back, m)
            solved = back.get()
            close(solved @ part if side else part @ solved, alpha * b, np.float32, "trsm")
        for uplo, op in itertools.product((0, 1), (0, 1)):
            turned, c = made(dtype, *((n, k), (k, n))[op]), made(dtype, n, n)
            a, b = turned, made(dtype, *turned.shape)
            pa, pb = (a, b) if op == 0 else (a.T, b.T)
            outside = ~triangle(np.ones((n, n), bool), uplo, False)
            for name, value, given in (
                ("syrk_v2", pa @ pa.T, ()), ("syr2k_v2", pa @ pb.T + pb @ pa.T, (Array(b), turned.shape[0])),
                ("syrkx", pa @ pb.T, (Array(b), turned.shape[0])),
            ):  # fmt: skip
                out = Array(c)
                call(
                    f"{letter}{name}",
                    uplo,
                    op,
                    n,
                    k,
                    Host(alpha),
                    Array(a),
                    turned.shape[0],
                    *given,
                    Host(beta),
                    out,
                    n,
                )
                close(out.get(), np.where(outside, c, alpha * value + beta * c), dtype, name)
            if letter in "CZ":
                out, ra, rb = Array(c), made(real(dtype), 1), made(real(dtype), 1)
                call(f"{letter}herk_v2", uplo, 2 * op, n, k, Host(ra), Array(a), turned.shape[0], Host(rb), out, n)
                pa = a if op == 0 else a.conj().T
                value = ra * (pa @ pa.conj().T) + rb * c
                np.fill_diagonal(value, value.diagonal().real)
                close(out.get(), np.where(outside, c, value), dtype, "herk")
        for side, uplo in itertools.product((0, 1), (0, 1)):
            order = n if side else m
            square, b, c = made(dtype, order, order), made(dtype, m, n), made(dtype, m, n)
            part = triangle(square, uplo, False)
            whole = part + part.T - np.diag(part.diagonal())
            out = Array(c)
            call(
                f"{letter}symm_v2", side, uplo, m, n, Host(alpha), Array(square), order, Array(b), m, Host(beta), out, m
            )
            close(out.get(), alpha * (b @ whole if side else whole @ b) + beta * c, dtype, "symm")
            out, x = Array(np.zeros((m, n), dtype)), made(dtype, order)
            call(f"{letter}dgmm", side, m, n, Array(b), m, Array(x), 1, out, m)
            close(out.get(), b * x if side else x[:, None] * b, dtype, "dgmm")
        for op_a, op_b in itertools.product(OPS, OPS):
            a, b = made(dtype, *((m, n), (n, m))[op_a > 0]), made(dtype, *((m, n), (n, m))[op_b > 0])
            out = Array(np.zeros((m, n), dtype))
            call(f"{letter}geam", op_a, op_b, m, n, Host(alpha), Array(a), len(a), Host(beta), Array(b), len(b), out, m)
            close(out.get(), alpha * OPS[op_a](a) + beta * OPS[op_b](b), dtype, "geam")


def vectors():
    n = 7
    for letter, dtype in DTYPES.items():
        x, y, alpha = made(dtype, n), made(dtype, n), made(dtype, 1)
        low, full = letter.lower(), {"C": "Sc", "Z": "Dz"}.get(letter, letter)
        by_size = np.abs(x.real) + np.abs(x.imag)
        results = [(f"{full}nrm2", np.linalg.norm(x), real(dtype)), (f"{full}asum", by_size.sum(), real(dtype))]
        results += [(f"I{low}amax", by_size.argmax() + 1, np.int32), (f"I{low}amin", by_size.argmin() + 1, np.int32)]
        for mode, kind in ((HOST, Host), (DEVICE, Array)):
            cublas.cublasSetPointerMode_v2(handle, mode)
            for name, wanted, type_ in results:
                out = kind(np.zeros(1, type_))
                call(f"{name}_v2", n, Array(x), 1, out)
                close(out.get(), wanted, dtype, name)
            for name, other in (("dotu", x), ("dotc", x.conj())) if letter in "CZ" else (("dot", x),):
                out = kind(np.zeros(1, dtype))
                call(f"{letter}{name}_v2", n, Array(x), 1, Array(y), 1, out)
                close(out.get(), other @ y, dtype, name)
            out = Array(y)
            call(f"{letter}axpy_v2", n, kind(alpha), Array(x), 1, out, -1)
            close(out.get(), y + alpha * x[::-1], dtype, "axpy")
            out = Array(x)
            call(f"{letter}scal_v2", n - 3, kind(alpha), out, 2)
            scaled = x.copy()
            scaled[::2] *= alpha
            close(out.get(), scaled, dtype, "scal")
            c, s = made(real(dtype), 1), made(dtype, 1)
            one, two = Array(x), Array(y)
            call(f"{letter}rot_v2", n, one, 1, two, 1, kind(c), kind(s))
            close(one.get(), c * x + s * y, dtype, "rot")
            close(two.get(), c * y - s.conj() * x, dtype, "rot")
        cublas.cublasSetPointerMode_v2(handle, HOST)
        one, two = Array(x), Array(y)
        call(f"{letter}swap_v2", n, one, 1, two, 1)
        call(f"{letter}copy_v2", n, one, 1, two, 1)
        assert (two.get() == y).all()


def bfloat(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def whole(rows, columns):
    return rng.integers(-128, 128, (rows, columns)).astype(np.int8)


def types():
    m, n, k = 6, 5, 300
    one, zero = Host(np.ones(1, np.float32)), Host(np.zeros(1, np.float32))
    a, b = made(np.float32, m, k), made(np.float32, k, n)
    cases = [
        (2, a.astype(np.float16), b.astype(np.float16), 2, np.float16, 68, np.float32),
        (2, a.astype(np.float16), b.astype(np.float16), 2, np.float16, 64, np.float16),
        (2, a.astype(np.float16), b.astype(np.float16), 0, np.float32, 68, np.float32),
        (14, bfloat(a), bfloat(b), 14, np.uint16, 68, np.float32),
        (3, whole(m, k), whole(k, n), 10, np.int32, 72, np.int32),
    ]  # fmt: skip
    for code, ha, hb, out_code, out_type, compute, scale in cases:
        out = Array(np.zeros((m, n), out_type))
        by, keep = Host(np.ones(1, scale)), Host(np.zeros(1, scale))
        given = (by, Array(ha), code, m, Array(hb), code, k, keep, out, out_code, m, compute, -1)
        call("GemmEx", 0, 0, m, n, k, *given)
        wide = [widened(x) if code == 14 else x for x in (ha, hb)]
        wanted = wide[0].astype(np.float64) @ wide[1].astype(np.float64)
        got = out.get()
        if out_type == np.int32:
            assert (got == wanted).all()
        elif out_type == np.uint16:
            assert np.abs(widened(got) - wanted).max() <= 2**-8 * np.abs(wanted).max()
        else:
            bound = 2**-11 if out_type == np.float16 else 1e-6
            assert (np.abs(got - wanted) <= bound * np.abs(wanted) + 1e-4).all()
    call("GemmEx", 0, 0, 1, 1, 1, one, Array(a), 28, 1, Array(b), 28, 1, zero, Array(a), 28, 1, 68, -1, status=15)
    assert "float8 e4m3" in driver.last_error


def lt_matmul():
    m, n, k = 9, 5, 4
    a, b, c, bias = made(np.float32, m, k), made(np.float32, k, n), made(np.float32, m, n), made(np.float32, m)
    alpha, beta = Host(made(np.float32, 1)), Host(made(np.float32, 1))
    plain = alpha.get() * (a @ b) + beta.get() * c
    relu, tanh = lambda x: np.maximum(x, 0), np.tanh
    gelu = lambda x: 0.5 * x * (1 + tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731
    lt_handle = ctypes.c_void_p()
    assert lt.cublasLtCreate(ctypes.byref(lt_handle)) == 0

    def layout(rows, columns, by_rows):
        desc = ctypes.c_void_p()
        stride = columns if by_rows else rows
        assert (
            lt.cublasLtMatrixLayoutCreate(
                ctypes.byref(desc), 0, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(stride)
            )
            == 0
        )
        order = ctypes.c_int(by_rows)
        assert lt.cublasLtMatrixLayoutSetAttribute(desc, 1, ctypes.byref(order), size(4)) == 0
        return desc

    for (epilogue, wanted), by_rows in itertools.product(
        {1: plain, 2: relu(plain), 4: plain + bias[:, None], 6: relu(plain + bias[:, None]), 32: gelu(plain),
         36: gelu(plain + bias[:, None]), 164: gelu(plain + bias[:, None])}.items(), (False, True),
    ):  # fmt: skip
        lay = (lambda x: np.array(x.T, order="F")) if by_rows else (lambda x: x)
        desc, dbias, aux = ctypes.c_void_p(), Array(bias), Array(np.zeros((m, n), np.float32))
        assert lt.cublasLtMatmulDescCreate(ctypes.byref(desc), 68, 0) == 0
        attributes = [(7, ctypes.c_uint32(epilogue)), (8, dbias.address), (11, aux.address), (12, ctypes.c_int64(m))]
        for number, value in attributes:
            assert lt.cublasLtMatmulDescSetAttribute(desc, number, ctypes.byref(value), size(ctypes.sizeof(value))) == 0
        layouts = [layout(*shape, by_rows) for shape in ((m, k), (k, n), (m, n), (m, n))]
        result, count = (ctypes.c_byte * 96)(), ctypes.c_int()
        status = lt.cublasLtMatmulAlgoGetHeuristic(lt_handle, desc, *layouts, None, 1, result, ctypes.byref(count))
        assert (status, count.value) == (0, 1)
        out = Array(lay(np.zeros((m, n), np.float32)))
        status = lt.cublasLtMatmul(
            lt_handle, desc, alpha.address, Array(lay(a)).address, layouts[0], Array(lay(b)).address, layouts[1],
            beta.address, Array(lay(c)).address, layouts[2], out.address, layouts[3], result, None, size(0), None,
        )  # fmt: skip
        assert status == 0, driver.last_error
        close(out.get().T if by_rows else out.get(), wanted, np.float32, (epilogue, by_rows))
        if epilogue & 128:
            close(aux.get(), plain + bias[:, None], np.float32, "aux")


def captured():
    """A captured product runs with each launch of its graph, with the numbers of then."""
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert runtime.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert cublas.cublasSetStream_v2(handle, stream) == 0
    x, y, one = made(np.float32, 4), Array(np.zeros(4, np.float32)), Host(np.ones(1, np.float32))
    added = Array(x)
    assert runtime.cudaStreamBeginCapture(stream, 0) == 0
    call("Saxpy_v2", 4, one, added, 1, y, 1)
    call("Sdot_v2", 4, y, 1, y, 1, one, status=15)
    assert "CUBLAS_POINTER_MODE_DEVICE" in driver.last_error
    assert runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert runtime.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    assert not y.get().any()
    for _ in range(3):
        assert runtime.cudaGraphLaunch(executable, stream) == 0
    close(y.get(), 3 * x, np.float32, "graph")
    assert cublas.cublasSetStream_v2(handle, None) == 0


def unwritten():
    """Where launches are checked, a product reads what somebody wrote, and its result counts as written."""
    launches = Launches()
    watch(Watch(launches, device_model(driver.model), checks=True))
    ctypes.CDLL(str(library_path())).workbench_driver_follow_writes(1)
    one, nothing = Host(np.ones(1, np.float32)), Host(np.zeros(1, np.float32))
    a, fresh, product = Array(made(np.float32, 4, 4)), Array(made(np.float32, 4, 4)), Array(made(np.float32, 4, 4))
    for array in (fresh, product):
        assert runtime.cudaFree(array.address) == 0
        assert runtime.cudaMalloc(ctypes.byref(array.address), size(64)) == 0
    call("Sgemm_v2", 0, 0, 4, 4, 4, one, a, 4, a, 4, nothing, product, 4)
    call("Sgemm_v2", 0, 0, 4, 4, 4, one, product, 4, a, 4, one, product, 4)
    assert not launches.faults
    call("Sgemm_v2", 0, 0, 4, 4, 4, one, a, 4, fresh, 4, one, a, 4)
    told = "uninitialised global read: byte 0 of B, which nobody wrote"
    (fault,) = map(str, launches.faults)
    said, _, place = fault.partition("; ")
    assert said == f"cublasSgemm(m=4, n=4, k=4): {told}"
    assert place.startswith("allocated at blas_calls.py:"), place
    watch(None)


def wrong():
    """Last: after it the context is lost."""
    a, one = Array(made(np.float32, 4, 4)), Host(np.ones(1, np.float32))
    call("Sgemm_v2", 0, 0, 4, 4, 4, one, a, 3, a, 4, one, a, 4, status=7)
    assert driver.last_error == "cublasSgemm: lda is 3, allowed is 4 or more"
    call("Sgemm_v2", 5, 0, 4, 4, 4, one, a, 4, a, 4, one, a, 4, status=7)
    call("Sgemm_v2", 0, 0, 4, 4, 4, a, a, 4, a, 4, one, a, 4, status=7)
    assert "alpha is in device memory, but the pointer mode is CUBLAS_POINTER_MODE_HOST" in driver.last_error
    assert cublas.cublasSgemm(0) == 15
    assert "include cublas_v2.h" in driver.last_error
    assert cublas.cublasDestroy_v2(None) == 1
    call("Sgemm_v2", 0, 0, 4, 4, 5, one, a, 4, Array(made(np.float32, 5, 4)), 5, one, a, 4)
    told = "out-of-bounds: reads 80 bytes of A in an allocation of 64 bytes: 16 bytes past its end"
    said, _, place = driver.last_fault.message.partition("; ")
    assert said == f"cublasSgemm(m=4, n=4, k=5): {told}"
    assert not place or place.startswith("allocated at blas_calls.py:"), place
    assert runtime.cudaDeviceSynchronize() == 700


for part in sys.argv[1:]:
    globals()[part]()
    print(part)
