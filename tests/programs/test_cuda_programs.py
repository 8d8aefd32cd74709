"""CUDA programs with a main(), run by ``workbench run``: right, clean under --check, faults found at their lines."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.driver.clients import host_programs
from workbench.errors import MissingToolError
from workbench.toolchain import nvcc, tools

PROGRAMS = Path(__file__).parent / "cuda"
OFTEN = ("errors", "pipeline", "symbols")
"""Programs of the default run; each costs nvcc's two seconds or more."""


def needs_nvcc() -> str | None:
    try:
        nvcc.program()
    except MissingToolError as error:
        return str(error)
    return None if shutil.which("g++") else "there is no g++"


pytestmark = pytest.mark.skipif(needs_nvcc() is not None, reason=needs_nvcc() or "")


def workbench_run(*arguments: object, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def options(program: Path) -> list[str]:
    """Return the options of a program's line ``// nvcc: ...``, with its further files beside it."""
    line = re.search(r"^// nvcc: (.+)$", program.read_text(), re.MULTILINE)
    words = shlex.split(line[1]) if line else []
    words = [str(program.parent / word) if (program.parent / word).is_file() else word for word in words]
    return ["--nvcc", shlex.join(words)] if words else []


def missing_header(program: Path) -> str | None:
    """Return the header of a program's line ``// needs: ...`` that this installation lacks."""
    line = re.search(r"^// needs: (\S+)$", program.read_text(), re.MULTILINE)
    folders = [Path(word[2:]) for word in host_programs.include_options()]
    return line[1] if line and not any((folder / line[1]).is_file() for folder in folders) else None


def programs() -> list:
    """Return every program: a file, or a folder with a main.cu."""
    found = {path.stem: path for path in PROGRAMS.glob("*.cu") if path.stem != "printing"}
    found |= {path.parent.name: path for path in PROGRAMS.glob("*/main.cu")}
    return [
        pytest.param(name, found[name], marks=[] if name in OFTEN else pytest.mark.long, id=name)
        for name in sorted(found)
    ]


@pytest.mark.parametrize(("name", "program"), programs())
def test_program_is_right_and_clean(name, program):
    if header := missing_header(program):
        pytest.skip(f"there is no {header}")
    check = [] if name == "errors" else ["--check"]  # it has a fault, which checks would let pass
    done = workbench_run(*check, *options(program), program)
    assert done.stdout.splitlines()[-1] == f"{name}: right"
    told = "checked: nothing found" if check else "workbench: a kernel failed: touch: out-of-bounds: 4 bytes at 0x0"
    assert told in done.stderr


@pytest.mark.long
def test_a_product_past_the_end_is_found_and_listed(tmp_path):
    shutil.copy(PROGRAMS / "check.h", tmp_path)
    program, page = tmp_path / "wrong.cu", tmp_path / "page.html"
    text = (PROGRAMS / "cublas_layer.cu").read_text()
    assert text.count("kOut, kBatch, kIn, &one") == 1
    program.write_text(text.replace("kOut, kBatch, kIn, &one", "kOut, kBatch + 1, kIn, &one"))
    done = workbench_run("--check", "--trace", page, *options(PROGRAMS / "cublas_layer.cu"), program, status=1)
    told = "cublasSgemm(m=37, n=22, k=50): out-of-bounds: reads 4400 bytes of B in an allocation of 4200 bytes"
    assert f"workbench: a call ended early: {told}: 200 bytes past its end" in done.stderr
    assert "<td>cublasSgemm</td><td>m=37, n=22, k=50</td>" in page.read_text()
    assert "on the host, not simulated" in page.read_text()


VISIT = "levels[target] == -1 && (levels[target] = level)"
MUTANTS = {
    "guard": ("vector_add", "if (i < n) c[i]", "c[i]", "out-of-bounds: 4 bytes"),
    "barrier": ("reduction", "__syncthreads();", "", "race"),
    "atomic": ("symbols", "atomicAdd(&total, value)", "total += value", "race"),
    "size": ("streams", "(device, 3, kChunk)", "(device, 3, kChunk + 1)", "out-of-bounds: 4 bytes"),
    "grid barrier": ("cooperative", "grid.sync();", "", "race"),
    "captured": ("graph", "*value += what", "value[1] += what", "out-of-bounds: 4 bytes"),
    "constant": ("symbols", "i < 3; ++i) value", "i < 4; ++i) value", "out-of-bounds: 4 bytes"),
    "freed block": (
        "lists",
        "    Node* next = at->next;\n    delete at;\n    at = next;",
        "    delete at; at = at->next;",
        "out-of-bounds: 8 bytes",
    ),
    "managed": ("managed", "list->value *= 2", "(&list->value)[4] *= 2", "out-of-bounds: 4 bytes"),
    "second barrier": ("matmul", "    __syncthreads();  // and may be replaced\n", "", "shared race"),
    "shared counter": ("histogram", "atomicAdd(&own[bin], 1u)", "++own[bin]", "shared race"),
    "uninitialised": ("histogram", "own[bin] = 0;", "own[0] = 0;", "uninitialised shared read"),
    "unread halo": ("transpose", "y + j < rows) tile", "y + j < rows - 1) tile", "uninitialised shared read"),
    "shuffle mask": ("sparse", "__shfl_down_sync(0xffffffff", "__shfl_down_sync(0xffff", "absent lane"),
    "divergent shuffle": ("scan", "below = __shfl_up", "below = lane < distance ? 0 : __shfl_up", "absent lane"),
    "halo": ("stencil", "y + 1 < height) tile", "y < height) tile", "out-of-bounds: 4 bytes"),
    "apron": ("convolution", "line[threadIdx.x + i]", "line[threadIdx.x + i + 1]", "out-of-bounds: 4 bytes at offset"),
    "warp without barrier": ("reduction", "__syncthreads();", "if (stride >= 32) __syncthreads();", "warp race"),
    "freed": ("matmul", "  const dim3 grid(", "  cudaFree(b_device);\n  const dim3 grid(", "4096 bytes that was freed"),
    "misaligned": ("row_norms", "reinterpret_cast<float4*>(in)", "reinterpret_cast<float4*>(in + 1)", "misaligned: 16"),
    "copy not awaited": ("pipeline", "    pipe.consumer_wait();\n", "", "cp.async data read before wait"),
    "stage overwritten": ("pipeline", "    block.sync();\n", "", "shared race"),
    "visited twice": ("breadth_first", "atomicCAS(&levels[target], -1, level) == -1", VISIT, "global race"),
    "early return": ("nbody", "const float4 own", "if (i >= n) return;\n  const float4 own", "uninitialised"),
}
LINES = {
    "size": "values[i] *= by", "barrier": "shared[threadIdx.x]", "grid barrier": "from[",
    "second barrier": "b_tile[threadIdx.y][threadIdx.x] = ", "uninitialised": "if (own[bin] != 0)",
    "unread halo": "= tile[threadIdx.x]", "warp without barrier": "shared[threadIdx.x + stride]",
    "freed": "? b[b_row * n + column]", "misaligned": "= row[i]", "copy not awaited": "= stages[",
    "stage overwritten": "memcpy_async(block", "early return": "attract(force, own, tile[j])",
}  # fmt: skip
"""Where the fault shows, if not where it was planted."""


@pytest.mark.parametrize(
    "name", [name if name == "guard" else pytest.param(name, marks=pytest.mark.long) for name in MUTANTS]
)
def test_mutant_is_found_at_its_line(name, tmp_path):
    program, written, instead, words = MUTANTS[name]
    text = (PROGRAMS / f"{program}.cu").read_text()
    assert text.count(written) == 1
    shutil.copy(PROGRAMS / "check.h", tmp_path)
    mutant = tmp_path / f"{program}.cu"
    mutant.write_text(text.replace(written, instead))
    page = tmp_path / "page.html"
    model = ("--model", "a100-sxm-80gb")
    done = workbench_run("--check", "--trace", page, *model, *options(mutant), mutant, status=1)
    assert f"{program}.cu" in page.read_text()
    assert "A100" in page.read_text()
    found = re.search(rf"^  {program}\.cu:(\d+): \w+\S*: .*{words}", done.stderr, re.MULTILINE)
    assert found, done.stderr
    assert LINES.get(name, instead) in mutant.read_text().splitlines()[int(found[1]) - 1]


PRINTED = [
    "first", "thread 0 says hello 0.00", "thread 1 says hello 0.50", "between", "thread 2 says hello 0.00",
    "thread 3 says hello 0.50", "last",
]  # fmt: skip
FREED = "freed: cudaSuccess"


def test_output_keeps_its_order_and_every_end_is_reported():
    program, clean = PROGRAMS / "printing.cu", "2 launches of greet checked: nothing found"
    done = workbench_run("--check", program)
    assert done.stdout.splitlines() == [*PRINTED, FREED]
    assert clean in done.stderr
    workbench_run("--check", program, "--trace", "x", status=3)  # arguments of its own
    done = workbench_run("--check", program, "exit", status=7)
    assert done.stdout.splitlines() == [*PRINTED, FREED]
    assert clean in done.stderr
    done = workbench_run("--check", program, "abort", status=-signal.SIGABRT)
    assert "ended by SIGABRT" in done.stderr
    assert clean in done.stderr
    done = workbench_run("--check", program, "touch", status=-signal.SIGSEGV)
    assert "which is device memory; copy it with cudaMemcpy" in done.stderr
    assert clean in done.stderr


@pytest.mark.long
def test_a_kernel_without_end_is_stopped_and_told(tmp_path):
    program = tmp_path / "spin.cu"
    program.write_text(
        "#include <cstdio>\n__global__ void spin(volatile int* flag) {\n  while (*flag == 0) {}\n}\n"
        "int main() {\n  int* flag;\n  cudaMalloc(&flag, 4);\n  spin<<<1, 1>>>(flag);\n"
        "  std::puts(cudaGetErrorName(cudaDeviceSynchronize()));\n  return 4;\n}\n"
    )
    done = workbench_run("--seconds-limit", 1, program, status=4)
    assert done.stdout == "cudaErrorLaunchTimeout\n"
    assert re.search(r"spin: timeout at \S*spin.cu:3", done.stderr)


@pytest.mark.long
def test_a_fork_has_no_device_and_no_report(tmp_path):
    program = tmp_path / "forks.cpp"  # host code alone calls the runtime too
    program.write_text(
        "#include <cuda_runtime.h>\n#include <sys/wait.h>\n#include <unistd.h>\n#include <cstdio>\n"
        "int main() {\n  void* pointer;\n  int status;\n  cudaMalloc(&pointer, 4);\n"
        "  if (fork() == 0) return cudaMalloc(&pointer, 4);\n  wait(&status);\n"
        "  std::puts(cudaGetErrorName((cudaError_t)WEXITSTATUS(status)));\n  return cudaFree(pointer);\n}\n"
    )
    done = workbench_run("--check", program, status=2)
    assert done.stdout == "cudaErrorInitializationError\n"
    assert done.stderr.count("nothing was checked") == 1


@pytest.mark.long
def test_ctrl_c_ends_a_host_loop_and_a_closed_pipe_a_writer(tmp_path):
    program = tmp_path / "loop.cu"
    program.write_text(
        "#include <cstdio>\n__global__ void once() {}\nint main(int argc, char**) {\n  once<<<1, 1>>>();\n"
        '  std::puts("looping");\n  std::fflush(stdout);\n  for (volatile long i = 0;; ++i) {\n'
        '    if (argc > 1) std::puts("more");\n  }\n}\n'
    )
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", "--check", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "looping\n"
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == -signal.SIGINT
    assert "ended by SIGINT" in told
    assert "1 launch of once checked: nothing found" in told
    with subprocess.Popen([*command, "more"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.readline()
        running.stdout.close()
        assert running.wait(timeout=60) == -signal.SIGPIPE


WRONG = {
    "no main": ("__global__ void k() {}\n", (), "which has no main()"),
    "an error": ("int main() { return nothing; }\n", (), r'program.cu\(1\): error: identifier "nothing" is undefined'),
    "a header": ('#include "absent.h"\nint main() {}\n', (), "--nvcc '-I FOLDER'"),
    "cuBLAS, not linked": (
        "#include <cublas_v2.h>\nint main() { cublasHandle_t h; return cublasCreate(&h); }\n",
        (),
        "--nvcc '-lcublas'|workbench setup nvcc",
    ),
    "a library": ("#include <cudnn.h>\nint main() {}\n", (), "cuDNN does not run on the simulated device"),
    "an absent library": ("int main() {}\n", ("--nvcc", "-labsent"), "cannot find -labsent"),
    "an old call": ("int main() { cudaThreadSynchronize(); }\n", (), "-DcudaThreadSynchronize=cudaDeviceSynchronize"),
    "an old member": ("int main() { cudaDeviceProp p; return p.clockRate; }\n", (), "ask cudaDeviceGetAttribute"),
    "another file": ("void other();\nint main() { other(); }\n", (), "--nvcc 'other.cu'"),
    "an option": ("int main() {}\n", ("--nvcc", "--nonsense"), "nonsense"),
    "no such architecture": ("int main() {}\n", ("--arch", "sm_12"), "sm_80, sm_89, sm_90"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_run_says_why(name, tmp_path):
    text, options, words = WRONG[name]
    program = tmp_path / "program.cu"
    program.write_text(text)
    assert re.search(words, workbench_run(*options, program, status=2).stderr)


@pytest.mark.long
def test_options_and_more_files_reach_nvcc(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "other.h").write_text("int other(int);\n")
    (tmp_path / "other.cu").write_text(
        "#include <other.h>\n__global__ void twice(int* value) { *value *= 2; }\n"
        "int other(int value) {\n  int* device;\n  cudaMallocManaged(&device, 4);\n  *device = value;\n"
        "  twice<<<1, 1>>>(device);\n  cudaDeviceSynchronize();\n"
        "  return *device;\n}\n"
    )
    program = tmp_path / "program.cu"
    program.write_text("#include <other.h>\nint main() { return other(START); }\n")
    words = f"-I {tmp_path / 'include'} -DSTART=21 -std=c++20 {tmp_path / 'other.cu'}"
    for _ in range(2):  # the second time it is kept
        workbench_run("--nvcc", words, program, status=42)
    done = workbench_run("--check", "--nvcc", "--default-stream per-thread", PROGRAMS / "streams.cu")
    assert "streams: right" in done.stdout


@pytest.mark.long
def test_machine_code_is_run_or_told_how_to_be_linked(tmp_path):
    program = tmp_path / "program.cu"
    program.write_text(
        "__global__ void k() {}\nint main() { k<<<1, 1>>>(); return 5 + (int)cudaDeviceSynchronize(); }\n"
    )
    made = {}
    for name, options in {
        "static": [],
        "shared": ["-cudart", "shared", *host_programs.link_options()],
        "library": ["-shared", "-Xcompiler", "-fPIC", "-cudart", "none"],
    }.items():
        made[name] = tmp_path / name
        target = ["-arch=compute_80", f"-I{tools.cuda_include()}", *(f"-L{one / 'lib'}" for one in tools.pip_folders())]
        subprocess.run([str(nvcc.program()), *target, *options, "-o", made[name], program], check=True)
    workbench_run(made["shared"], status=5)
    workbench_run(made["library"], status=5)
    workbench_run("./shared", status=5, cwd=tmp_path)
    told = workbench_run(made["static"], status=2).stderr
    assert "NVIDIA's CUDA runtime inside" in told
    assert "-cudart shared" in told


@pytest.mark.long
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_what_make_builds_and_runs_joins_the_report(tmp_path):
    for name in ("vector_add.cu", "check.h"):
        shutil.copy(PROGRAMS / name, tmp_path)
    (tmp_path / "one.cu").write_text(
        "#include <cuda_profiler_api.h>\nextern __device__ int twice(int);\n"
        "__global__ void call(int* value) {\n  value[1] = twice(*value);\n}\n"
        "int main() {\n  int* value;\n  cudaProfilerStart();\n  cudaMallocManaged(&value, 4);\n  *value = 21;\n"
        "  call<<<1, 1>>>(value);\n  return cudaDeviceSynchronize();\n}\n"
    )
    (tmp_path / "two.cu").write_text("__device__ int twice(int value) { return 2 * value; }\n")
    (tmp_path / "Makefile").write_text(
        "test: vector_add several\n\t./vector_add 500\n\t./several\n"
        "vector_add: vector_add.cu\n\tnvcc -gencode arch=compute_80,code=sm_80 -O2 -lcudart -o $@ $<\n"
        "several: one.o two.o\n\tnvcc -arch=sm_90 -rdc=true -o $@ $^\n%.o: %.cu\n\tnvcc -arch sm_90 -dc -o $@ $<\n"
    )
    done = workbench_run("--check", "make", "-C", tmp_path, "test", status=1)
    assert "vector_add: right" in done.stdout
    assert "one.cu:4: call: out-of-bounds: 4 bytes" in done.stderr
    assert "2 launches checked, 1 finding" in done.stderr
    alone = subprocess.run([tmp_path / "vector_add", "7"], capture_output=True, text=True)
    assert (alone.returncode, alone.stdout) == (0, "7 elements\nvector_add: right\n")
    workbench_run("make", "-C", tmp_path, "nothing", status=2)
