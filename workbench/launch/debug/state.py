"""The state of a stopped launch, as a session reads it: registers, shared memory, arrays, warps and their waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.analysis.places import source_text
from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch.debug.code import KernelCode, RegisterSlot
from workbench.launch.debug.conditions import parse_condition
from workbench.launch.debug.control import LaunchOrders
from workbench.launch.debug.memory import WRITER, DebugMemory
from workbench.launch.debug.places import Coordinates, Status, lane_ranges
from workbench.launch.debug.register_types import as_array
from workbench.launch.debug.stops import StopMaker
from workbench.launch.debug.waits import BarrierState, CopyState, MbarrierState, WaitsOfBlock, WarpState
from workbench.ptx import PtxKernel
from workbench.ptx.launch import MachineLaunch
from workbench.ptx.machine import core
from workbench.ptx.naming import mbarrier_name
from workbench.ptx.operands import Register
from workbench.ptx.options import coordinates

BlockLike = int | tuple[int, ...] | None
_AROUND = 5  # source lines on each side of a listing


@dataclass(frozen=True)
class RegisterView:
    """A register of a warp: its 32 lanes, the variable that it holds and the line that writes it, where known."""

    name: str
    type: str
    values: np.ndarray
    variable: str = ""
    place: str = ""

    def __str__(self) -> str:
        name = f"{self.variable} ({self.name})" if self.variable else self.name
        return f"{name}, {self.type}" + (f", written at {self.place}" if self.place else "") + f": {self.values}"


@dataclass(frozen=True)
class ElementWriter:
    """The last writer of an element: the line, the block, the thread in it, and the index of the instruction."""

    place: str
    block: Coordinates
    thread: Coordinates
    index: int

    def __str__(self) -> str:
        return f"{self.place}, block {self.block}, thread {self.thread}, instruction {self.index:,}"


class SessionState:
    """Reads a launch that stands still."""

    code: KernelCode
    kernel: PtxKernel
    launch: MachineLaunch
    memory: DebugMemory
    grid: Coordinates
    block: Coordinates
    _control: LaunchOrders
    _maker: StopMaker

    # -- where -------------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """``"stopped"`` before an instruction, ``"fault"`` where the launch cannot go on, or ``"ended"``."""
        found: dict[Any, Status] = {core.DebuggerStatus.faulted: "fault", core.DebuggerStatus.ended: "ended"}
        return found.get(self._control.status, "stopped")

    @property
    def index(self) -> int:
        """Number of instructions that the launch has issued so far."""
        return self._control.index

    @property
    def _current(self) -> tuple[int, int, int, int] | None:
        """Block, warp, pc and lanes of the instruction that comes next, or of a finding; None at the end."""
        debugger = self._control.debugger
        row, current = debugger.finding, debugger.current
        if row is None or row["pc"] < 0 or row["block"] not in debugger.blocks:
            return current
        here = row["block"], row["thread"] // 32, row["pc"]
        return current if current is not None and current[:3] == here else (*here, 1 << row["thread"] % 32)

    def _block_index(self, block: BlockLike = None) -> int:
        here = self._current[0] if self._current else -1
        index = here if block is None else self._maker.block_index(block)
        running = self._control.debugger.blocks
        if index not in running:
            allowed = ", ".join(str(coordinates(one, self.grid)) for one in running) or "none: the launch has ended"
            raise ArgumentError("block", block, f"a block that runs now: {allowed}", "Go to where it runs.")
        return index

    def _warp(self, warp: int | None) -> int:
        count = -(-self.block[0] * self.block[1] * self.block[2] // 32)
        number = (self._current[1] if self._current else 0) if warp is None else warp
        if not 0 <= number < count:
            raise ArgumentError("warp", warp, f"0 to {count - 1}", "Name a warp of the block.")
        return number

    @property
    def blocks(self) -> tuple[Coordinates, ...]:
        """Blocks that run now: one, or those of a cluster or a cooperative launch."""
        return tuple(coordinates(one, self.grid) for one in self._control.debugger.blocks)

    @property
    def history_bytes(self) -> int:
        """Bytes of memory that the way back takes."""
        return self._control.debugger.log_bytes

    def listing(self, around: int = _AROUND) -> str:
        """Return the source around the current line; each line that a warp of the block stands at names its warps."""
        current = self._current
        if current is None:
            return ""
        here: dict[int, list[str]] = {}
        file, line = self.code.places[current[2]]
        for state in self.warps():
            for group in state.groups:
                path, number = self.code.places[group.pc]
                if path == file and number:
                    here.setdefault(number, []).append(f"warp {state.warp} {lane_ranges(group.lanes)}")
        rows = []
        for number in range(max(1, line - around), line + around + 1):
            text = source_text(file, number)
            mark = "->" if number == line else "  "
            note = f"    <- {'; '.join(here[number])}" if number in here else ""
            rows.append(f"{mark}{number:5} {text}{note}".rstrip())
        return "\n".join(rows)

    # -- registers ---------------------------------------------------------------------------------------------------

    def _register(self, name: str, pc: int) -> Register:
        register = self.code.register(name, pc)
        if register is None:
            known = ", ".join(self.code.known_names(pc)[:40]) or "none"
            raise UnknownNameError("register", repr(name), known, "Name a register that has a value here.")
        return register

    def _pc_of(self, warp: int, block: int) -> int:
        current = self._current
        if current is not None and current[:2] == (block, warp):
            return current[2]
        groups = self._waits(block).warps(current)[warp].groups
        return groups[0].pc if groups else 0

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the 32 lanes of a register (``"%f3"``) or a variable of the current warp, or a copy of an array."""
        if name in self.memory.arrays and name not in self.code.variables:
            return self.memory.copy(name)
        return self.register(name).values

    def register(self, name: str, *, warp: int | None = None, block: BlockLike = None) -> RegisterView:
        """Return a register or a variable of a warp; by default of the current one.

        Raises UnknownNameError for a name that has no value there.
        """
        index, number = self._block_index(block), self._warp(warp)
        pc = self._pc_of(number, index)
        (slot,) = self.code.slots(pc, [self._register(name, pc)])
        return self._view(slot, pc, self._control.debugger.registers(index, number))

    def _view(self, slot: RegisterSlot, pc: int, content: bytes) -> RegisterView:
        register = self._register(slot.name, pc)
        writers = self.code.writers(register, pc)
        before = [at for at in writers if at < pc] or writers
        values = as_array(content, slot.slot, slot.type, slot.width)
        place = self.code.label(before[-1]) if before else ""
        return RegisterView(slot.name, slot.type, values, self.code.variable_of(slot, pc), place)

    def registers(self, *, warp: int | None = None, block: BlockLike = None) -> dict[str, RegisterView]:
        """Return the registers of a warp that have values where it stands, by name."""
        index, number = self._block_index(block), self._warp(warp)
        pc = self._pc_of(number, index)
        content = self._control.debugger.registers(index, number)
        return {slot.name: self._view(slot, pc, content) for slot in self.code.live(pc)}

    def operands(self) -> dict[str, RegisterView]:
        """Return the registers that the current instruction reads, by name."""
        current = self._current
        if current is None:
            return {}
        block, warp, pc, _ = current
        content = self._control.debugger.registers(block, warp)
        slots = self.code.slots(pc, self.code.sources(pc))
        return {slot.name: self._view(slot, pc, content) for slot in slots}

    def evaluate(self, expression: str, *, warp: int | None = None, block: BlockLike = None) -> np.ndarray:
        """Return the value of an expression in the 32 lanes of a warp, as float64: what a stop's condition may say."""
        index, number = self._block_index(block), self._warp(warp)
        pc = self._pc_of(number, index)
        condition = parse_condition(expression, self.block, self.grid)

        def found(name: str) -> Any:
            self._register(name, pc)
            return self._maker.found(name, pc)

        return np.array(self._control.debugger.evaluate(index, number, condition.rows(found)))

    # -- memory ------------------------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Any:
        """Return a copy of an array of the launch as it is now. Raises UnknownNameError for a name that is none."""
        return self.memory.copy(name)

    def shared(
        self, dtype: str = "uint8", shape: tuple[int, ...] | None = None, *, at: int | str = 0, block: BlockLike = None
    ) -> np.ndarray:
        """Return shared memory as an array of a dtype, from an offset or the beginning of a variable on.

        ``bfloat16`` comes as float32. ``shape`` defaults to all that follows.
        """
        content = self._control.debugger.shared(self._block_index(block))
        begin, size = (at, len(content) - at) if isinstance(at, int) else self._shared_variable(at, len(content))
        kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
        count = size // kind.itemsize if shape is None else int(np.prod(shape))
        if begin < 0 or begin + count * kind.itemsize > len(content):
            allowed = f"at most {len(content)} bytes from offset 0"
            raise ArgumentError("shape", shape, allowed, "Shared memory of the block ends there.")
        values = np.frombuffer(content, kind, count, begin)
        if dtype == "bfloat16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.copy() if shape is None else values.reshape(shape).copy()

    def _shared_variable(self, name: str, end: int) -> tuple[int, int]:
        variables = self.memory.shared_variables()
        if name not in variables:
            known = ", ".join(variables) or "none"
            raise UnknownNameError("variable", repr(name), known, "Or pass an offset in bytes.")
        begin, size = variables[name]
        return begin, size or end - begin

    def tensor_memory(self, columns: int = 512, *, block: BlockLike = None) -> np.ndarray | None:
        """Return tensor memory as (128, columns) words of 32 bits; None for a kernel without it."""
        content = self._control.debugger.tensor_memory(self._block_index(block))
        return None if content is None else np.frombuffer(content, np.uint32).reshape(512, 128).T[:, :columns].copy()

    def writers(self, name: str) -> dict[tuple[int, ...], ElementWriter]:
        """Return who wrote each element of an array last, by index; elements that nobody wrote are left out.

        The launch is repeated from its beginning to where it stands.
        """
        span, size, shape, strides = self.memory.elements(name)
        here, ended = self.index, self.status != "stopped"
        debugger = self._control.debugger
        self._control.goto(0)
        debugger.record_writers(span.begin, span.end, size)
        if ended:
            self._control.order()
        else:
            self._control.goto(here)
        rows = np.frombuffer(debugger.writers, WRITER)
        debugger.record_writers(0, 0, 1)
        found = {}
        for index in np.ndindex(*shape):
            row = rows[sum(at * stride for at, stride in zip(index, strides, strict=True))]
            if row["block"] >= 0:
                block, thread = coordinates(int(row["block"]), self.grid), coordinates(int(row["thread"]), self.block)
                found[index] = ElementWriter(self.code.label(int(row["pc"])), block, thread, int(row["index"]))
        return found

    # -- warps and waits ---------------------------------------------------------------------------------------------

    def _waits(self, block: int) -> WaitsOfBlock:
        return WaitsOfBlock(self.code, self._control.debugger, block, lambda at: mbarrier_name(self.kernel, at) or "")

    def warps(self, block: BlockLike = None) -> tuple[WarpState, ...]:
        """Return where the lanes of each warp of a block stand, and what they wait for."""
        return self._waits(self._block_index(block)).warps(self._current)

    def barriers(self, block: BlockLike = None) -> tuple[BarrierState, ...]:
        """Return the barriers of a block at which threads have arrived."""
        return self._waits(self._block_index(block)).barriers

    def mbarriers(self, block: BlockLike = None) -> tuple[MbarrierState, ...]:
        """Return the mbarriers in a block's shared memory."""
        index = self._block_index(block)
        return self._waits(index).mbarriers(len(self._control.debugger.shared(index)))

    def copies(self, block: BlockLike = None) -> tuple[CopyState, ...]:
        """Return the asynchronous copies of a block that are under way."""
        return self._waits(self._block_index(block)).copies

    def waits(self) -> tuple[str, ...]:
        """Return a sentence for each group of lanes that waits: what for, and for whom; of all blocks that run."""
        found = []
        for index in self._control.debugger.blocks:
            prefix = f"block {coordinates(index, self.grid)}, " if self.grid != (1, 1, 1) else ""
            found += [prefix + one for one in self._waits(index).explained(self._current)]
        return tuple(found)
