"""Translation of the core's problems into findings in terms of the kernel's source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.ptx import endless_waits, products, tensor_loads, wrapped_index
from workbench.ptx.buffers import Buffer, made_of
from workbench.ptx.core_result import CoreFinding
from workbench.ptx.decode import locate, readable
from workbench.ptx.naming import (
    SCOPES,
    mbarrier_name,
    scope_of,
    shared_place,
    shared_variable,
    signed_offset,
    with_mbarrier_names,
)
from workbench.ptx.options import coordinates
from workbench.ptx.pointers import looks_like
from workbench.ptx.report import Finding

if TYPE_CHECKING:
    from workbench.ptx.extents import Extent
    from workbench.ptx.kernel import DecodedKernel

# Kind of a shuffle's undefined value. Only a second launch can show whether the kernel uses it.
UNDEFINED = "undefined shuffle value"
# Kind of a race between threads that hold the same element of one of Triton's tensors. Each adds up its products in
# another order (fma leaves a thread's own product unrounded, a neighbour's product is rounded), so the values that they
# store to one place, with one instruction, can differ in the last bit.
REPLICAS = "replicas that differ"
# Kind of a race of a write with another lane's earlier read, with a warp-wide exchange of values in between, as Triton
# writes it. PTX orders memory at bar.warp.sync and not at shfl.sync; a GPU has read a value before it hands it on.
SHUFFLED = "read ordered by a shuffle alone"
# Kind of a write to global memory that a cp.async or a bulk load is still to read, or may have read.
SOURCE = "write to global memory that a copy is reading"
# Kind of a store into the gaps between the elements of an argument. It may be intended, as of a row and its padding.
BETWEEN = "store between elements"
# Kind of a read of unwritten memory by a load whose values only selects use. A mask often drops the unwritten ones.
CHOSEN = "unwritten values before a select"
# Kind of a race of an atomic with a plain load whose value an atomic confirms: it may be old, and no more.
CONFIRMED = "plain load that an atomic confirms"
# Kind of a sum of floats by atomic additions that nothing orders, not all of which are exact. Such sums are meant: they
# are a note, also in a strict launch.
ORDER = "order of float additions"
# Kind of a wait in plain memory for a block that starts later. CUDA promises no order of blocks; a GPU with room for
# all of them runs them at once.
LATER_BLOCK = "wait for a block that starts later"
WITHOUT_RULE = "no answer of exact comparison"
# Kinds of findings by the core's problems, and by those that products.py and tensor_loads.py find before a launch.
KINDS = {
    "out_of_bounds": "out-of-bounds",
    "misaligned": "misaligned",
    "read_only": "write to read-only memory",
    "shared_out_of_bounds": "out-of-bounds",
    "local_out_of_bounds": "out-of-bounds",
    "parameter_out_of_bounds": "out-of-bounds",
    "shared_race": "shared race",
    "warp_race": "warp race",
    "replicas": REPLICAS,
    "shuffled": SHUFFLED,
    "global_race": "global race",
    "uninitialised_shared": "uninitialised shared read",
    "uninitialised_global": "uninitialised global read",
    "unwritten_choice": CHOSEN,
    "confirmed_load": CONFIRMED,
    "pending_copy": "cp.async data read before wait",
    "pending_read": "write to shared memory that is being read",
    "pending_source": SOURCE,
    "proxy_fence": "missing fence.proxy.async",
    "divergent_barrier": "divergent barrier",
    "barrier_misuse": "barrier misuse",
    "mbarrier_misuse": "mbarrier misuse",
    "bulk_misuse": "async copy or product misuse",
    "remote_misuse": "cluster misuse",
    "absent_lane": "absent lane",
    "absent_self": "absent lane",
    "undefined_lane": UNDEFINED,
    "unawaited_copy": "cp.async data read before wait",
    "unknown_mbarrier": "missing fence.mbarrier_init",
    "refill_fence": "missing fence.proxy.async",
    "unknown_map": "missing fence.proxy.tensormap",
    "map_in_use": "tensor map changed while a copy reads it",
    "store_unawaited": "bulk store read before wait",
    "warp_synchronous": "volatile access without __syncwarp",
    "acquire_fence": "missing acquire fence",
    "ended_threads": "barrier that threads have ended before",
    "dependency_wait": "missing griddepcontrol.wait",
    "unawaited_arrivals": "arrivals that nobody waits for",
    "scattered_barrier": "barrier at several places",
    "mismatched_mask": "mismatched mask",
    "trap": "trap",
    "assertion": "assertion failed",
    "heap_misuse": "device heap misuse",
    "tensor_misuse": "tensor memory misuse",
    "tensor_race": "tensor memory race",
    "unwritten_tensor": "unwritten tensor memory read",
    "invalid_metadata": "invalid sparsity metadata",
    "outside_extent": "out-of-bounds",
    "between_elements": BETWEEN,
    "wrapped_index": "wrapped index",
    "order_of_additions": ORDER,
    "stack_overflow": "stack overflow",
    "deadlock": "deadlock",
    "timeout": "timeout",
    "endless_wait": "deadlock",
    "later_block": LATER_BLOCK,
    "without_rule": WITHOUT_RULE,
    products.TOUCHED: products.TOUCHED,
    products.UNFENCED: products.UNFENCED,
    tensor_loads.UNAWAITED: tensor_loads.UNAWAITED,
}
# Kinds that are notes unless a launch is strict: the rules forbid them, or warn of them, and GPUs tolerate them.
NOTES = frozenset(
    (
        UNDEFINED,
        "arrivals that nobody waits for",
        "barrier at several places",
        "bulk store read before wait",
        "volatile access without __syncwarp",
        "missing acquire fence",
        "barrier that threads have ended before",
        REPLICAS,
        SHUFFLED,
        BETWEEN,
        CHOSEN,
        CONFIRMED,
        tensor_loads.UNAWAITED,
        ORDER,
        LATER_BLOCK,
    )
)
ALWAYS_NOTES = frozenset((ORDER,))
# Kinds that only a strict launch reports for kernels that Triton compiled, whose source cannot mend them: all lack the
# fence of mbarriers, some that of products, which ptxas puts in.
TRITONS_OWN = frozenset(("missing fence.mbarrier_init", products.UNFENCED))
GRID_SYNC = (
    "; grid.sync() needs a cooperative launch: pass cooperative=True, "
    "or end the kernel at that point and launch the rest as a second one"
)
_TOLD = (
    "absent_self",
    "mismatched_mask",
    "barrier_misuse",
    "bulk_misuse",
    "remote_misuse",
    "unawaited_arrivals",
    "tensor_misuse",
    "invalid_metadata",
)  # problems whose text the core writes
_EXPLAINED = ("unawaited_copy",)  # problems whose text stands beside the place
_IN_SHARED = (
    "volatile access without __syncwarp",
    "missing fence.proxy.async",
    "missing fence.mbarrier_init",
    "write to shared memory that is being read",
)
_RACES = ("warp_race", "shared_race", "global_race")
_LONG = 240  # characters of a statement
_NEAR = 24  # instructions to search for one with a line
_LOOP = 4  # instructions, from a wait at an mbarrier to the end of its loop
# Reads that have their value before the warp goes on, unlike copies and products of warp groups.
_READS = ("ld", "wmma.load")
_TRITONS_SHARED = "global_smem"  # all shared memory of a kernel that Triton compiled; its source cannot name it
_MANGLED = re.compile(r"\b_Z\w+")
_ARGUMENT = re.compile(r"\bargument (\d+)")
_OF_WRAPPED = (
    "; its address is computed from an index that has wrapped at {}: its value does not fit into 32 bits, neither with "
    "nor without a sign, and the access is elsewhere in memory. Compute it in 64 bits"
)
_WINDOWS = {
    "shared_out_of_bounds": "shared memory",
    "local_out_of_bounds": "local memory",
    "parameter_out_of_bounds": "the parameters",
}


def called(buffers: Sequence[Buffer], names: Sequence[str], values: Sequence[Any]) -> Sequence[Buffer]:
    """Rename buffers by the arguments' names; those that one argument leads to get a description of its value."""

    def made(buffer: Buffer) -> Callable[[], str] | None:
        found = _ARGUMENT.fullmatch(buffer.name)
        return partial(made_of, values[int(found[1])]) if found and int(found[1]) < len(values) else buffer.made

    return [replace(buffer, name=named(buffer.name, names), made=made(buffer)) for buffer in buffers]


def named(text: str, names: Sequence[str]) -> str:
    """Name the arguments in a text: "argument 0/argument 1" is "x/y" then, "argument 0[3]" is "x[3]"."""

    def name(found: re.Match[str]) -> str:
        return names[int(found[1])] if int(found[1]) < len(names) else found[0]

    return _ARGUMENT.sub(name, text)


def _made(name: str | None, buffers: Sequence[Buffer]) -> str:
    """Return the kind of allocation of a named buffer, for the end of a message."""
    found = next((one.made for one in buffers if one.name == name and one.made is not None), None)
    made = found() if found is not None else ""
    return f"; {name}: {made}" if made else ""


def nearest(address: int, size: int, buffers: Sequence[Buffer]) -> tuple[str | None, str]:
    """Return the name of the buffer near an address, and a description of the address relative to it.

    The address was probably computed from that buffer's. The name is None if no buffer is near.
    """
    if address < 1 << 16:
        return None, "a null pointer"

    def distance(buffer: Buffer) -> int:
        return max(buffer.address - address, address + size - buffer.address - buffer.size, 0)

    near = [buffer for buffer in buffers if distance(buffer) < buffer.reach]
    if not near:
        return None, looks_like(address)
    buffer = min(near, key=distance)
    offset = address - buffer.address
    if offset < 0:
        where = f"{-offset} bytes before {buffer.name}, which has {buffer.size} bytes"
    elif offset >= buffer.size:
        where = f"{offset - buffer.size} bytes past the end of {buffer.name}, which has {buffer.size} bytes"
    else:
        where = f"byte {offset} of {buffer.name}, which has {buffer.size} bytes"
    return buffer.name, where


def of_tritons_code(kernel: DecodedKernel, row: CoreFinding) -> CoreFinding:
    """Return the row of a race, with the problem that fits if Triton's way of writing code causes the race."""
    if kernel.module.by_llvm and row.problem in _RACES:
        if _of_replicas(kernel, row):
            return replace(row, problem="replicas")
        if row.exchanged and _opcode(kernel, row.other_pc).startswith(_READS):
            return replace(row, problem="shuffled")
    return row


def of_choices(kernel: DecodedKernel, row: CoreFinding) -> CoreFinding:
    """Return the row of a read of unwritten memory, with the problem that fits if only selects use its values."""
    if row.problem == "uninitialised_global" and kernel.only_chosen(kernel.decoded.written_at(row.pc)):
        return replace(row, problem="unwritten_choice")
    return row


def of_confirmed(kernel: DecodedKernel, row: CoreFinding) -> CoreFinding:
    """Return the row of a race, with the problem that fits if it is that of an atomic with a load that one confirms."""
    if row.problem not in _RACES or row.other_pc < 0:
        return row
    for load, other in ((row.pc, row.other_pc), (row.other_pc, row.pc)):
        atomic = _opcode(kernel, other).startswith("atom.")
        if atomic and _opcode(kernel, load).startswith("ld.") and kernel.confirmed(kernel.decoded.written_at(load)):
            return replace(row, problem="confirmed_load")
    return row


def loads_ahead(kernel: DecodedKernel, row: CoreFinding) -> bool:
    """Return True for unwritten tensor memory that a kernel of Triton loads.

    In the rounds of a pipeline that are peeled off its loop, Triton gives a predicate to products, stores and waits,
    but none to loads. Where such a round does not run, the load reads unwritten memory, and nothing uses the value.
    """
    unwritten = kernel.module.by_llvm and row.problem == "unwritten_tensor"
    return unwritten and _opcode(kernel, row.pc).startswith("tcgen05.ld")


def _of_replicas(kernel: DecodedKernel, row: CoreFinding) -> bool:
    """Return True if threads of one block store their copies of one value, with one instruction."""
    if row.problem == "global_race" or row.pc != row.other_pc or row.other_block >= 0:
        return False
    found = shared_variable(kernel, row.address)
    named = found is not None and found[0] == _TRITONS_SHARED
    return named and _opcode(kernel, row.pc).startswith("st")


def _opcode(kernel: DecodedKernel, pc: int) -> str:
    return kernel.decoded.code[kernel.decoded.written_at(pc)].opcode.name


def describe(
    kernel: DecodedKernel,
    row: CoreFinding,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    buffers: Sequence[Buffer],
) -> Finding:
    """Make the finding of one row of the core's result."""
    problem, kind = row.problem, KINDS[row.problem]
    row = replace(row, pc=kernel.decoded.written_at(row.pc))
    place, other = place_of(kernel, row.pc), place_of(kernel, row.other_pc)
    code = kernel.decoded.code
    statement = code[row.pc].statement if 0 <= row.pc < len(code) else None
    other_statement = code[row.other_pc].statement if 0 <= row.other_pc < len(code) else None
    block_at, thread_at = coordinates(row.block, grid), coordinates(row.thread, block)
    buffer, detail, address = _detail(kernel, row, problem, kind, grid, block, buffers)
    who = f"block {block_at}, thread {thread_at}"
    if kind in ("timeout", "deadlock"):
        who = f"block {block_at}, warp {row.thread // 32}, thread {thread_at}"
    message = f"{readable(kernel.name)}: {kind}{detail} at {place or 'its end'}, {who}"
    if other and problem == "wrapped_index":
        message += _OF_WRAPPED.format(other)
    elif other and (kind != ORDER or other != place):
        message += f"; the other side is {other}"
    if problem == "out_of_bounds" and buffer is not None and address is not None:
        begin = next((one.address for one in buffers if one.name == buffer), None)
        message += "" if begin is None else wrapped_index.cause_of(kernel, row.pc, address - begin)
    if kind == "trap" and "cooperative_groups" in place:
        message += GRID_SYNC
    message += _made(buffer, buffers) + _times(row.count)
    at, other_at = _named(kernel, row.pc), _named(kernel, row.other_pc)
    source, line = kernel.source_of(at)
    other_source, other_line = kernel.source_of(other_at)
    kernel_source, kernel_line = kernel.source_of(at, in_kernel_file=True)
    other_kernel_source, other_kernel_line = kernel.source_of(other_at, in_kernel_file=True)
    return Finding(
        kind, message, readable(kernel.name), block_at, thread_at, address, buffer, line or None, source,
        other_line or None, other_source, statement.line if statement else 0,
        other_statement.line if other_statement else None,
        row.count, kernel_line or None, kernel_source, other_kernel_line or None, other_kernel_source,
        at != row.pc, other_at != row.other_pc,
        None if row.other_block < 0 else coordinates(row.other_block, grid),
        None if row.other_thread < 0 else coordinates(row.other_thread, block),
        scope=scope_of(kind, row.thread, row.other_thread, row.other_block),
    )  # fmt: skip


def folded(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings of one kind at one place in the source, or at one pair of places that race.

    The message is that of the first one, with the counts of all.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        place = finding.kind, finding.sides
        known = found.get(place)
        if known is not None:
            count, places = known.count + finding.count, known.places + finding.places
            message = known.message.removesuffix(_times(known.count, known.places)) + _times(count, places)
            finding = replace(known, message=message, count=count, places=places)
        found[place] = finding
    return widest_first(found.values())


def widest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by scope: between blocks, between warps, between lanes; equal ones keep their order."""
    return sorted(findings, key=lambda finding: SCOPES.index(finding.scope))


def _times(count: int, places: int = 1) -> str:
    if count == 1:
        return ""
    return f"; {count} times" + (f", in {places} places of the PTX" if places > 1 else "")


def _detail(
    kernel: DecodedKernel,
    row: CoreFinding,
    problem: str,
    kind: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    buffers: Sequence[Buffer],
) -> tuple[str | None, str, int | None]:
    size, address = row.bytes, row.address
    other = coordinates(row.other_thread, block) if row.other_thread >= 0 else None
    if row.extent is not None:
        return row.extent.name, _outside(kernel, row, row.extent, buffers), address
    if problem in _WINDOWS:
        name, where = None, f"offset {address} of {_WINDOWS[problem]}"
        if problem == "shared_out_of_bounds":
            name, where = shared_place(kernel, address)
            if (extent := kernel.extents.variable(row.pc)) is not None:
                name, where = extent.name, f"{where}, {extent.place(signed_offset(address), _width(kernel, row))}"
        return name, f": {size} bytes at {where}", address
    if kind in ("out-of-bounds", "write to read-only memory", "misaligned"):
        if row.text:
            return None, f": {size} bytes at 0x{address:x}, {row.text.decode()}", address
        own = kind == "misaligned" and address < 1 << 40
        name, where = (None, "shared or local memory") if own else nearest(address, size, buffers)
        if problem == "out_of_bounds" and (extent := kernel.extents.variable(row.pc)) is not None:
            name, where = extent.name, extent.place(address, _width(kernel, row))
        return name, f": {size} bytes at 0x{address:x}, {where}", address
    if kind in ("tensor map changed while a copy reads it", "missing fence.proxy.tensormap"):
        own = address >= 1 << 56
        name, where = (None, "a map in shared memory") if own else nearest(address, size, buffers)
        told = f"; {row.text.decode()}" if row.text else ""
        return name, f": {where}{told}", address
    if problem in _EXPLAINED:
        name, where = shared_place(kernel, address)
        return name, f": {size} bytes at {where}; {row.text.decode()}", address
    if kind in (
        "shared race",
        "warp race",
        REPLICAS,
        "uninitialised shared read",
        "cp.async data read before wait",
        *_IN_SHARED,
    ) or (kind == CONFIRMED and address < 1 << 40):
        with_ = f" with thread {other}" if other else ""
        if row.other_block >= 0:
            with_ += f" of block {coordinates(row.other_block, grid)}"
        name, where = shared_place(kernel, address)
        return name, f"{with_}: {size} bytes at {where}", address
    if problem in ("tensor_race", "unwritten_tensor"):
        lane, column = divmod(address, 1 << 16)
        with_ = f" with thread {other}" if other else ""
        told = f"; {row.text.decode()}" if row.text else ""
        return None, f"{with_}: column {column} of tensor memory, lanes {lane} to {lane + 15}{told}", address
    if kind == "missing griddepcontrol.wait":
        name, where = nearest(address, size, buffers)
        before = f"the launch before, of {readable(row.text.decode())}, may still run and touch them"
        return name, f": {size} bytes at 0x{address:x}, {where}: {before}", address
    if kind == "bulk store read before wait":
        name, where = nearest(address, size, buffers)
        return name, f": {where}: cp.async.bulk.wait_group.read waits for the store's source only", address
    if kind in (
        "global race", "uninitialised global read", "missing acquire fence", "wrapped index", CHOSEN, CONFIRMED,
    ):  # fmt: skip
        name, where = nearest(address, size, buffers)
        with_ = f" with thread {other} of the same block" if other else ""
        if row.other_block >= 0:
            with_ = f" with block {coordinates(row.other_block, grid)}"
        return name, f"{with_}: {size} bytes at 0x{address:x}, {where}", address
    if kind == SOURCE:
        name, where = nearest(address, size, buffers)
        by = "the same thread" if row.other_thread == row.thread else f"thread {other} of the same block"
        if row.other_block >= 0:
            by = f"block {coordinates(row.other_block, grid)}"
        told = f"a copy that {by} asked for reads them, and no wait for it comes before the write"
        return name, f": {size} bytes at 0x{address:x}, {where}: {told}", address
    if kind == ORDER:
        name, where = shared_place(kernel, address) if address < 1 << 40 else nearest(address, size, buffers)
        with_ = f"thread {other}"
        if row.other_block >= 0:
            with_ = f"block {coordinates(row.other_block, grid)}"
        told = "the result depends on the order of these additions, and may differ in the last bits from run to run"
        return name, f": {told}; {with_} adds to the {size} bytes at {where}, too,", address
    if kind == "device heap misuse":
        return None, f": free(0x{address:x}), {row.text.decode()}", address
    if kind == "assertion failed":  # Triton calls every function unknown
        return None, f": {row.text.decode(errors='replace').replace(' in unknown, ', ', ')}", None
    if problem in ("endless_wait", "later_block", "timeout") and row.text:
        name, where = _read_at(kernel, row.pc, address, size, buffers)
        told = row.text.decode()
        if problem == "later_block":
            return (
                name,
                f": {size} bytes at {where}; a cooperative launch promises that all blocks run at once",
                address,
            )
        said = endless_waits.described(kernel, told, size, where, grid)
        return name, said, address
    if kind == "deadlock" and row.text and _waits_at_mbarrier(kernel, row.pc):
        return None, f": {with_mbarrier_names(kernel, row.text.decode())}", None
    if kind == WITHOUT_RULE:
        return None, f": it {kernel.without_rule[row.pc]}".replace(": it no rule", ": no rule"), None
    if problem in _TOLD:
        return None, f": {row.text.decode(errors='replace')}", None
    if kind == "mbarrier misuse":
        name = mbarrier_name(kernel, address)
        where = f"at offset {address} of shared memory" + (f", {name}" if name else "")
        return name, f": {row.text.decode()}, {where}", address
    if kind == "stack overflow":
        depth = f": {address} calls deep, the {size} bytes of local memory per thread are full"
        return None, depth, None
    if other is not None:
        verb = {
            "divergent barrier": "is elsewhere",
            "absent lane": "takes no part",
            "barrier at several places": "waits at another place",
            "barrier that threads have ended before": "of the same warp has ended",
            UNDEFINED: "takes no part, so that its value is undefined",
        }
        return None, f": thread {other} {verb.get(kind, '')}".rstrip(), None
    return None, "", None


def _outside(kernel: DecodedKernel, row: CoreFinding, extent: Extent, buffers: Sequence[Buffer]) -> str:
    """Describe an access outside of the ``extent`` of the variable or argument from which its address is computed."""
    address, width = row.address, _width(kernel, row)
    if extent.in_shared:
        at, (other, where) = f"offset {address} of shared memory", shared_place(kernel, address)
    else:
        at, (other, where) = f"0x{address:x}", nearest(address, row.bytes, buffers)
    text = f": {row.bytes} bytes at {at}, {extent.place(address, width)}"
    if other is not None and other != extent.name:
        text += f"; it lands in {other}" if extent.in_shared else f"; that is {where}"
    if row.least != row.most:
        first, last = (extent.place(side, width).partition(" of ")[0] for side in (row.least, row.most))
        text += f"; in all from {first} to {last}"
    return text


def _width(kernel: DecodedKernel, row: CoreFinding) -> int:
    """Return the bytes of an element of an access: of a vector one of its parts."""
    made = kernel.decoded.code[row.pc].form.instruction
    return made.bytes if made.elements > 1 and made.bytes else row.bytes


def _read_at(
    kernel: DecodedKernel, pc: int, address: int, size: int, buffers: Sequence[Buffer]
) -> tuple[str | None, str]:  # fmt: skip
    """Return the name and the description of the place that the load at ``pc`` reads."""
    window, generic = address >> 56, ".shared" not in _opcode(kernel, pc)
    if window == 1 or not generic:
        return shared_place(kernel, address & ((1 << 56) - 1))
    name, where = nearest(address, size, buffers)
    return name, f"0x{address:x}, {where}"


def _waits_at_mbarrier(kernel: DecodedKernel, pc: int) -> bool:
    """Return True if an instruction is in a wait's loop; the core only knows the mbarrier that a warp tested last."""
    before = kernel.decoded.code[max(pc - _LOOP, 0) : pc + 1]
    return any(step.opcode.name.startswith("mbarrier.t") for step in before)


def _named(kernel: DecodedKernel, pc: int) -> int:
    """Return the pc of the instruction that gives the source line of ``pc``: itself, or the next one with a line.

    Compilers give line 0 to instructions made of several lines, such as two loads merged into one.
    """
    code = kernel.decoded.code
    for at in range(pc, min(pc + _NEAR, len(code)) if pc >= 0 else pc):
        if code[at].start is None or (at > pc and code[at].form.ends):
            break
        if kernel.source_of(at)[1]:
            return at
    return pc


def place_of(kernel: DecodedKernel, pc: int) -> str:
    """Return ``file:line (PTX line n, `text`)`` of an instruction."""
    if not 0 <= pc < len(kernel.decoded.code):
        return ""
    statement = kernel.decoded.code[pc].statement
    if statement is None:
        return ""
    named = _named(kernel, pc)
    source = kernel.decoded.code[named].statement
    where = locate(kernel.module, source.location if source else None)
    if where and named != pc:
        where = f"or near {where}"
    text = _MANGLED.sub(lambda found: readable(found[0]), statement.text)
    if len(text) > _LONG:  # tcgen05 and wgmma name up to 128 registers
        text = f"{text[:_LONG]} ..."
    ptx = f"PTX line {statement.line}, `{text}`"
    return f"{where} ({ptx})" if where else ptx
