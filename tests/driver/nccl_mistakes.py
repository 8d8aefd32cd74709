"""Mistakes of ranks, which are threads of this process: each line of output is a case and the errors of its ranks.

The library is called as programs in C call it. A rank that dies is a process of its own.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from workbench.driver import simulated_driver
from workbench.driver.clients.host_programs import load_libraries
from workbench.driver.library_files import runtime_path

driver = simulated_driver(force=True, devices=2)
load_libraries()
cuda, nccl = (ctypes.CDLL(str(runtime_path().with_name(name))) for name in ("libcudart.so.13", "libnccl.so.2"))
nccl.ncclGetLastError.restype = ctypes.c_char_p
FLOAT, SUM, COUNT = 7, 0, ctypes.c_size_t(4)


class UniqueId(ctypes.Structure):
    """The identifier of a communicator."""

    _fields_ = (("text", ctypes.c_char * 128),)


class Failed(Exception):
    """A call that returned an error; the text is the library's message."""


def identifier() -> UniqueId:
    made = UniqueId()
    assert nccl.ncclGetUniqueId(ctypes.byref(made)) == 0
    return made


class Rank:
    """A rank with a device, and memory on it."""

    def __init__(self, rank: int, device: int, *ids: UniqueId) -> None:
        assert cuda.cudaSetDevice(device) == 0
        self.memory, self.stream, self.number = ctypes.c_void_p(), ctypes.c_void_p(), rank
        assert cuda.cudaMalloc(ctypes.byref(self.memory), ctypes.c_size_t(1024)) == 0
        assert cuda.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1) == 0
        self.communicators = []
        for one in ids:
            handle = ctypes.c_void_p()
            self._must(nccl.ncclCommInitRank(ctypes.byref(handle), 2, one, rank))
            self.communicators.append(handle)

    def _must(self, status: int) -> None:
        if status:
            raise Failed(nccl.ncclGetLastError(None).decode())

    def sum(self, which: int = 0) -> None:
        end = self.communicators[which], self.stream
        self._must(nccl.ncclAllReduce(self.memory, self.memory, COUNT, FLOAT, SUM, *end))

    def broadcast(self) -> None:
        self._must(nccl.ncclBcast(self.memory, COUNT, FLOAT, 0, self.communicators[0], self.stream))

    def send(self, count: int) -> None:
        end = 1 - self.number, self.communicators[0], self.stream
        self._must(nccl.ncclSend(self.memory, ctypes.c_size_t(count), FLOAT, *end))

    def receive(self) -> None:
        self._must(nccl.ncclRecv(self.memory, COUNT, FLOAT, 1 - self.number, self.communicators[0], self.stream))

    def destroy(self) -> None:
        self._must(nccl.ncclCommDestroy(self.communicators[0]))

    def wait(self) -> None:
        if cuda.cudaStreamSynchronize(self.stream):
            raise Failed(driver.last_error)


def disagree(rank: Rank) -> None:
    (rank.broadcast if rank.number else rank.sum)()
    rank.wait()


def crossed(rank: Rank) -> None:
    for which in (rank.number, 1 - rank.number):
        rank.sum(which)
        rank.wait()


def both_send(rank: Rank) -> None:
    rank.send(4)
    rank.receive()
    rank.wait()


def other_size(rank: Rank) -> None:
    if rank.number:
        rank.send(3)
    else:
        rank.receive()
    rank.wait()


def leaves(rank: Rank) -> None:
    rank.sum()
    rank.wait()
    if rank.number:
        rank.destroy()
    else:
        rank.sum()
        rank.wait()


def ended(rank: Rank) -> None:
    rank.destroy()
    rank.sum()


def no_root(rank: Rank) -> None:
    nccl_status = nccl.ncclBcast(rank.memory, COUNT, FLOAT, 2, rank.communicators[0], rank.stream)
    rank._must(nccl_status)


def shrinks(rank: Rank) -> None:
    rank._must(nccl.ncclCommShrink(rank.communicators[0]))


def shares_a_device(rank: Rank) -> None:
    raise AssertionError("the communicator was made")


def right(rank: Rank) -> None:
    """Enqueue, and wait only later: no rank is in the other's way."""
    stored = (ctypes.c_float * 4)(*[rank.number + 1] * 4)
    cuda.cudaMemcpy(rank.memory, stored, ctypes.c_size_t(16), 1)
    for which in (0, 1):
        rank.sum(which)
    assert nccl.ncclGroupStart() == 0
    rank.receive()
    rank.send(4)
    assert nccl.ncclGroupEnd() == 0
    rank.wait()
    cuda.cudaMemcpy(stored, rank.memory, ctypes.c_size_t(16), 2)
    assert list(stored) == [6] * 4


def together(case: Callable[[Rank], None]) -> list[str]:
    """Run a case on two threads; return what each raised."""
    said, ids = ["", ""], [identifier(), identifier()]

    def run(number: int) -> None:
        try:
            case(Rank(number, 0 if case is shares_a_device else number, *ids))
        except Failed as failed:
            said[number] = str(failed)
        except AssertionError as failed:
            said[number] = f"AssertionError: {failed}"

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return said


def with_a_dead_rank() -> list[str]:
    one = identifier()
    other = subprocess.Popen([sys.executable, __file__, bytes(one).hex()])
    rank = Rank(0, 0, one)
    assert other.wait() == 3
    try:
        rank.sum()
        rank.wait()
    except Failed as failed:
        return [str(failed).replace(str(other.pid), "PID")]
    return []


CASES = (right, disagree, crossed, both_send, other_size, leaves, ended, no_root, shrinks, shares_a_device)

if __name__ == "__main__":
    if sys.argv[1:]:
        Rank(1, 1, UniqueId.from_buffer_copy(bytes.fromhex(sys.argv[1])))
        os._exit(3)
    for each in CASES:
        print(json.dumps([each.__name__, *together(each)]), flush=True)
    print(json.dumps(["dies", *with_a_dead_rank()]), flush=True)
