"""Sources as trees: a kernel, its pieces, and smaller kernels made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

SLOTS = 24  # words of 64 bits that a thread writes
# By type, what stands for an expression that is taken away.
SIMPLEST = {
    "u32": "0u", "i32": "0", "u64": "0ull", "i64": "0ll", "f32": "0.f", "f64": "0.", "f16": "__ushort_as_half(0x3c00)",
    "bool": "false",
}  # fmt: skip
_PLACE = re.compile(r"\$(\d)")


@dataclass(frozen=True)
class Node:
    """A piece of source: ``text`` with $0, $1, ... for its parts. ``type`` is a C++ type, "stmt" or "block".

    A block is its parts, one after the other.
    """

    text: str
    type: str
    parts: tuple[Node, ...] = ()

    def __str__(self) -> str:
        if self.type == "block":
            return "\n".join(map(str, self.parts))
        return _PLACE.sub(lambda found: str(self.parts[int(found[1])]), self.text)

    def size(self) -> int:
        return 1 + sum(part.size() for part in self.parts)


@dataclass(frozen=True)
class Kernel:
    """One kernel and how it is launched; ``functions`` are those that it calls, ``variables`` its declarations."""

    name: str
    functions: tuple[Node, ...]
    variables: tuple[Node, ...]
    body: Node
    ending: Node
    grid: tuple[int, int]
    shape: tuple[int, int, int]
    seed: int

    @property
    def threads(self) -> int:
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1]

    def source(self) -> str:
        head = [
            f'extern "C" __global__ void {self.name}(const u64* in, u64* out, u32* cells, Mixed given) {{',
            "const u32 t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;",
            "const u32 block = blockIdx.y * gridDim.x + blockIdx.x;",
            f"const u32 everyone = t / 32 == {self.threads - 1} / 32 ? ~0u >> {-self.threads % 32} : ~0u;",
            f"u64* mine = out + (block * {self.threads} + t) * {SLOTS};",
        ]
        parts = [*self.functions, *head, *self.variables, self.body, self.ending, "}"]
        return "\n".join(str(part) for part in parts if str(part)).replace("NAME", self.name) + "\n"

    def size(self) -> int:
        return sum(node.size() for node in (*self.functions, *self.variables, self.body, self.ending))


def cut(kernel: Kernel) -> Iterator[Kernel]:
    """Kernels like this one with something taken away, the largest pieces first."""
    for i in range(len(kernel.functions)):
        if "NAME_mix(" not in "".join(map(str, (*kernel.variables, kernel.body))):
            yield replace(kernel, functions=kernel.functions[:i] + kernel.functions[i + 1 :])
    used = str(kernel.body) + str(kernel.ending) + "".join(map(str, kernel.functions))
    spare = tuple(v for v in kernel.variables if re.search(rf"\b{_declared(v)}\b", used))
    if len(spare) < len(kernel.variables):
        yield replace(kernel, variables=spare)
    for blocks in range(1, kernel.blocks):
        yield replace(kernel, grid=(blocks, 1))
    for place in ("body", "ending"):
        for node in _smaller(getattr(kernel, place)):
            yield replace(kernel, **{place: node})
    for i, function in enumerate(kernel.functions):
        for node in filter(lambda node: node.type == "stmt", _smaller(function)):
            yield replace(kernel, functions=(*kernel.functions[:i], node, *kernel.functions[i + 1 :]))


def _declared(variable: Node) -> str:
    return re.match(r"\w+ (\w+)", variable.text)[1]


def _smaller(node: Node) -> Iterator[Node]:
    """The tree with one piece taken away."""
    if node.type == "block":
        for half in (node.parts[: len(node.parts) // 2], node.parts[len(node.parts) // 2 :]):
            if len(node.parts) > 2:
                yield replace(node, parts=half)
        for i in range(len(node.parts)):
            yield replace(node, parts=node.parts[:i] + node.parts[i + 1 :])
    elif node.type == "stmt":
        for part in node.parts:  # the statements inside, without what is around them
            bound = ["break", "continue", *re.findall(r"(?:u32|bool|int) ([a-z]+\d+)\b", node.text)]
            is_free = not any(re.search(rf"\b{name}\b", str(part)) for name in bound)
            if part.type == "block" and part.parts and is_free:
                yield part
    else:
        simple = Node(SIMPLEST[node.type], node.type)
        if node != simple and (node.parts or not re.fullmatch(r"[\w.+-]+", node.text)):
            yield simple
        for part in node.parts:
            if part.type == node.type:
                yield part
    for i, part in enumerate(node.parts):
        for smaller in _smaller(part):
            yield replace(node, parts=(*node.parts[:i], smaller, *node.parts[i + 1 :]))
