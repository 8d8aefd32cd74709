"""Random statements: what threads do alone, as a warp and as a block, in an order that does not matter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from fuzz.expressions import LITERALS, OF_KERNEL, OPERATIONS, TYPES
from fuzz.trees import SLOTS, Node

_WEIGHTS = (8, 5, 3, 2, 5, 3, 2)
# Every operation has cells of its own, so that the result does not depend on the order.
_ATOMICS = (
    "atomicAdd(cells + (block & 1), $0);", "atomicSub(cells + (block & 1), $0);", "add_by_swaps(cells + 2, $0);",
    "atomicInc(cells + 3, 99u);", "atomicMin(cells + 4, $0);", "atomicMax((i32*)cells + 5, (i32)$0);",
    "atomicAnd(cells + 6, $0);", "atomicOr(cells + 7, $0);", "atomicXor(cells + 8, $0);",
    "atomicAdd((u64*)cells + 5, (u64)$0 * $0);", "atomicMax((u64*)cells + 6, (u64)$0 << 9);",
    "atomicMin((i32*)cells + 14, (i32)$0);", "atomicMax(cells + 15, $0);",
)  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """Where a statement stands. ``mask``: the lanes of the warp that are here together, "" where none is known to be;
    ``whole``: all threads of the block are here."""

    mask: str
    whole: bool
    depth: int = 0
    in_loop: bool = False
    in_function: bool = False
    counters: tuple[str, ...] = ()

    def diverged(self, **changes) -> Scope:
        return replace(self, mask="", whole=False, depth=self.depth + 1, **changes)


@dataclass
class Writer:
    """Draws one kernel."""

    draw: random.Random
    threads: int
    variables: dict[str, list[str]] = field(default_factory=dict)
    in_kernel: bool = True
    numbers: int = 0

    def fresh(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    # ---- expressions ----

    def leaf(self, kind: str, scope: Scope) -> Node:
        names = list(self.variables.get(kind, ()))
        if kind == "u32" and self.in_kernel:
            names += ["t", "block", *scope.counters]
        if names and self.draw.random() < 0.8:
            return Node(self.draw.choice(names), kind)
        if kind == "u32" and self.draw.random() < 0.3:
            return Node(f"{self.draw.getrandbits(32):#x}u", kind)
        return Node(self.draw.choice(LITERALS[kind]), kind)

    def expression(self, kind: str, scope: Scope, depth: int | None = None) -> Node:
        depth = self.draw.choice((1, 2, 2, 3, 4)) if depth is None else depth
        if depth == 0 or self.draw.random() < 0.1:
            return self.leaf(kind, scope)
        text, parts = self.draw.choice(OPERATIONS[kind])
        while not self.in_kernel and OF_KERNEL.search(text):
            text, parts = self.draw.choice(OPERATIONS[kind])
        return Node(text, kind, tuple(self.expression(part, scope, depth - 1) for part in parts.split()))

    def kind(self) -> str:
        return self.draw.choices(TYPES, _WEIGHTS)[0]

    def target(self, kinds: tuple[str, ...] = TYPES) -> tuple[str, str]:
        kind = self.draw.choice([kind for kind in kinds if self.variables.get(kind)])
        return self.draw.choice(self.variables[kind]), kind

    # ---- statements ----

    def block(self, scope: Scope, count: int) -> Node:
        return Node("", "block", tuple(self.statement(scope) for _ in range(count)))

    def statement(self, scope: Scope) -> Node:
        kinds = [(self.assign, 5), (self.observe, 5)]
        if scope.in_function:
            kinds += [(self.leave_function, 1)]
        else:
            kinds += [(self.table_store, 1), (self.vector_load, 1), (self.atomic, 1), (self.own_store, 1)]
        if scope.depth < 3:
            kinds += [(self.branch, 3), (self.loop, 2), (self.switch, 1), (self.while_loop, 1)]
        if scope.in_loop and not scope.mask:
            kinds += [(self.leave_loop, 2)]
        if scope.mask:
            kinds += [(self.shuffle, 3), (self.vote, 3), (self.reduction, 1)]
            if scope.depth < 3:
                kinds += [(self.masked_branch, 2), (self.together_loop, 1), (self.together_branch, 1)]
                kinds += [(self.voted_loop, 1)]
        if scope.whole:
            kinds += [(self.exchange, 4), (self.narrow_exchange, 1), (self.warp_exchange, 1)]
            kinds += [(self.global_exchange, 1), (self.shared_atomics, 1), (self.counted_barrier, 1)]
            kinds += [(self.tickets, 1), (self.copied_exchange, 1)]
        makers, weights = zip(*kinds, strict=True)
        return self.draw.choices(makers, weights)[0](scope)

    def assign(self, scope: Scope) -> Node:
        name, kind = self.target()
        return Node(f"{name} = $0;", "stmt", (self.expression(kind, scope),))

    def observe(self, scope: Scope) -> Node:
        """What is not written over before the end."""
        kind = self.kind()
        seen = (
            "b = b * 31u + (u32)bits($0);" if scope.in_function else "seen = seen * 0x9e3779b97f4a7c15ull + bits($0);"
        )
        return Node(seen, "stmt", (self.expression(kind, scope),))

    def table_store(self, scope: Scope) -> Node:
        """Into arrays of the thread's own, at an index that only the run knows."""
        text = self.draw.choice(
            ("table[$0 & 7] = $1;", "small[$0 & 15] = (i8)$1;", "pair[$0 & 1].e[$0 % 3] = (i32)$1;")
        )
        return Node(text, "stmt", (self.expression("u32", scope), self.expression("u32", scope)))

    def own_store(self, scope: Scope) -> Node:
        """Narrow and wide ones into the thread's own global memory."""
        if self.draw.random() < 0.4:
            text = f"*(uint4*)(mine + {SLOTS - 6}) = uint4{{$0, u32_0, $1, u32_1}};"
            return Node(text, "stmt", (self.expression("u32", scope, 1), self.expression("u32", scope, 1)))
        kind, mask, slot = self.draw.choice((("u8", 7, SLOTS - 1), ("u16", 3, SLOTS - 2)))
        parts = self.expression("u32", scope, 1), self.expression("u32", scope)
        return Node(f"(({kind}*)(mine + {slot}))[$0 & {mask}] = ({kind})$1;", "stmt", parts)

    def vector_load(self, scope: Scope) -> Node:
        vector, count, kind, fields = self.draw.choice((
            ("uint4", 127, "u32", "xyzw"), ("float4", 127, "f32", "xyzw"), ("ulonglong2", 127, "u64", "xy"),
            ("uint2", 255, "u32", "xy"),
        ))  # fmt: skip
        name, value = self.target((kind,))[0], self.fresh("v")
        first, second = self.draw.choice(fields), self.draw.choice(fields)
        op = "+" if kind == "f32" else "^"
        text = (
            f"{{ const {vector} {value} = ((const {vector}*)in)[$0 & {count}]; "
            f"{name} = {value}.{first} {op} {value}.{second}; }}"
        )
        return Node(text, "stmt", (self.expression("u32", scope),))

    def atomic(self, scope: Scope) -> Node:
        text = self.draw.choice(_ATOMICS)
        return Node(text, "stmt", (self.expression("u32", scope, 2),) if "$0" in text else ())

    def branch(self, scope: Scope) -> Node:
        inner = scope.diverged()
        parts = (
            self.expression("bool", scope),
            self.block(inner, self.draw.randint(1, 3)),
            self.block(inner, self.draw.randint(0, 2)),
        )
        return Node("if ($0) {\n$1\n} else {\n$2\n}", "stmt", parts)

    def loop(self, scope: Scope) -> Node:
        i = self.fresh("n")
        inner = scope.diverged(in_loop=True, counters=(*scope.counters, i))
        parts = self.expression("u32", scope, 2), self.block(inner, self.draw.randint(1, 3))
        return Node(f"for (u32 {i} = 0; {i} < ($0 & 7); ++{i}) {{\n$1\n}}", "stmt", parts)

    def while_loop(self, scope: Scope) -> Node:
        i = self.fresh("n")
        inner = scope.diverged(in_loop=True, counters=(*scope.counters, i))
        parts = self.expression("bool", inner), self.block(inner, self.draw.randint(1, 3))
        if self.draw.random() < 0.5:
            return Node(f"{{ u32 {i} = 0;\nwhile ($0 && {i}++ < 9) {{\n$1\n}} }}", "stmt", parts)
        return Node(f"{{ u32 {i} = 0;\ndo {{\n$1\n}} while (++{i} < 5 && $0); }}", "stmt", parts)

    def leave_loop(self, scope: Scope) -> Node:
        word = self.draw.choice(("break", "continue"))
        return Node(f"if ($0) {word};", "stmt", (self.expression("bool", scope),))

    def leave_function(self, scope: Scope) -> Node:
        return Node("if ($0) return $1;", "stmt", (self.expression("bool", scope), self.expression("u32", scope, 1)))

    def switch(self, scope: Scope) -> Node:
        inner = scope.diverged(in_loop=False)
        cases = self.draw.sample(range(8), self.draw.choice((2, 3, 5, 8)))
        lines = [
            f"case {case}: {{\n${i + 1}\n}}" + self.draw.choice((" break;", " break;", ""))
            for i, case in enumerate(cases)
        ]
        parts = [self.expression("u32", scope)] + [self.block(inner, self.draw.randint(1, 2)) for _ in cases]
        return Node("switch ($0 & 7) {\n" + "\n".join(lines) + "\ndefault: break;\n}", "stmt", tuple(parts))

    # ---- what the threads of a warp do together ----

    def shuffle(self, scope: Scope) -> Node:
        name, kind = self.target(("u32", "i32", "u64", "i64", "f32", "f64"))
        value = self.expression(kind, scope, 2)
        full = scope.mask == "everyone" and self.threads % 32 == 0
        way = self.draw.choice(("", "_up", "_down", "_xor")) if full else "first"
        if way == "first":
            text = f"{name} = __shfl_sync({scope.mask}, $0, __ffs({scope.mask}) - 1);"
            return Node(text, "stmt", (value,))
        by = self.expression("u32", scope, 1) if way == "" else Node(str(self.draw.randint(0, 31)), "u32")
        width = self.draw.choice((32, 32, 32, 16, 8, 2))
        return Node(f"{name} = __shfl{way}_sync(everyone, $0, $1 & 31, {width});", "stmt", (value, by))

    def vote(self, scope: Scope) -> Node:
        choice, mask = self.draw.randrange(5), scope.mask
        name = self.target(("u32",))[0]
        if choice < 3:
            word = ("__ballot_sync", "__any_sync", "__all_sync")[choice]
            return Node(f"{name} = {word}({mask}, $0);", "stmt", (self.expression("bool", scope),))
        kind = self.draw.choice(("u32", "u64", "i32"))
        value = Node("($0 & 3)", kind, (self.expression(kind, scope),))
        if choice == 3:
            return Node(f"{name} = __match_any_sync({mask}, $0);", "stmt", (value,))
        all_ = self.fresh("all")
        text = f"{{ int {all_}; {name} = __match_all_sync({mask}, $0, &{all_}); {name} += {all_}; }}"
        return Node(text, "stmt", (value,))

    def reduction(self, scope: Scope) -> Node:
        kind = self.draw.choice(("u32", "i32"))
        name = self.target((kind,))[0]
        word = self.draw.choice(("add", "min", "max") if kind == "i32" else ("add", "min", "max", "and", "or", "xor"))
        return Node(f"{name} = __reduce_{word}_sync({scope.mask}, $0);", "stmt", (self.expression(kind, scope),))

    def masked_branch(self, scope: Scope) -> Node:
        """A branch on both sides of which the lanes know each other."""
        mask, rest, taken = self.fresh("m"), self.fresh("r"), self.fresh("c")
        sides = [Scope(name, False, scope.depth + 1, counters=scope.counters) for name in (mask, rest)]
        blocks = [self.block(sides[0], self.draw.randint(1, 3)), self.block(sides[1], self.draw.randint(0, 2))]
        text = (
            f"{{ const bool {taken} = $0; const u32 {mask} = __ballot_sync({scope.mask}, {taken});\n"
            f"const u32 {rest} = {scope.mask} & ~{mask};\nif ({taken}) {{\n$1\n}} else {{\n$2\n}} }}"
        )
        return Node(text, "stmt", (self.expression("bool", scope), *blocks))

    def voted_loop(self, scope: Scope) -> Node:
        """A loop that goes on for all as long as one of them wants it."""
        n = self.fresh("n")
        inner = replace(scope, depth=scope.depth + 1, whole=False, counters=(*scope.counters, n))
        parts = self.expression("u32", scope, 2), self.block(inner, self.draw.randint(1, 2))
        return Node(f"for (u32 {n} = 0; __any_sync({scope.mask}, {n} < ($0 & 3)); ++{n}) {{\n$1\n}}", "stmt", parts)

    def together_loop(self, scope: Scope) -> Node:
        """A loop that all who are here run through equally often."""
        i = self.fresh("n")
        inner = replace(scope, depth=scope.depth + 1, counters=(*scope.counters, i))
        text = f"for (u32 {i} = 0; {i} < {self.draw.randint(2, 3)}; ++{i}) {{\n$0\n}}"
        return Node(text, "stmt", (self.block(inner, self.draw.randint(1, 2)),))

    def together_branch(self, scope: Scope) -> Node:
        """A branch that all threads of a block take, or none."""
        inner = replace(scope, depth=scope.depth + 1)
        condition = self.draw.choice(("block != 1", "(u32)in[3] >> (block & 31) & 1", "given.a > 220"))
        return Node(f"if ({condition}) {{\n$0\n}}", "stmt", (self.block(inner, self.draw.randint(1, 3)),))

    # ---- what the threads of a block do together ----

    def exchange(self, scope: Scope) -> Node:
        name, kind = self.target()
        if kind == "f16":
            name, kind = self.target(("u32",))
        tile, threads = self.fresh("tile"), self.threads
        declared = f"__shared__ {kind} {tile}[{threads}];"
        if kind == "u64" and self.draw.random() < 0.5:
            tile, declared = "dynamic", ""
        text = (
            f"{{ {declared}\n__syncthreads();\n{tile}[t] = $0;\n__syncthreads();\n{name} = {tile}[$1 % {threads}]; }}"
        )
        return Node(text, "stmt", (self.expression(kind, scope, 2), self.expression("u32", scope, 2)))

    def narrow_exchange(self, scope: Scope) -> Node:
        name, tile, threads = self.target(("u32",))[0], self.fresh("tile"), self.threads
        kind = self.draw.choice(("u8", "i8", "u16", "i16"))
        text = (
            f"{{ __shared__ {kind} {tile}[{threads}];\n__syncthreads();\n{tile}[t] = ({kind})$0;\n__syncthreads();\n"
            f"{name} += (u32){tile}[$1 % {threads}]; }}"
        )
        return Node(text, "stmt", (self.expression("u32", scope, 2), self.expression("u32", scope, 2)))

    def warp_exchange(self, scope: Scope) -> Node:
        """Through shared memory, but within a warp."""
        name, kind = self.target(("u32", "f32", "u64"))
        tile, threads = self.fresh("tile"), -(-self.threads // 32) * 32
        last = f"min(t | 31, {self.threads - 1}u)"
        text = (
            f"{{ __shared__ {kind} {tile}[{threads}];\n__syncwarp(everyone);\n{tile}[t] = $0;\n__syncwarp(everyone);\n"
            f"{name} = {tile}[min(t / 32 * 32 + ($1 & 31), {last})];\n__syncwarp(everyone); }}"
        )
        return Node(text, "stmt", (self.expression(kind, scope, 2), self.expression("u32", scope, 2)))

    def global_exchange(self, scope: Scope) -> Node:
        name = self.target(("u64",))[0]
        base, slot = f"(block * {self.threads} + $1 % {self.threads}) * {SLOTS}", SLOTS - 3
        text = f"__syncthreads(); mine[{slot}] = $0;\n__syncthreads(); {name} = out[{base} + {slot}]; __syncthreads();"
        return Node(text, "stmt", (self.expression("u64", scope, 2), self.expression("u32", scope, 2)))

    def shared_atomics(self, scope: Scope) -> Node:
        bins, name = self.fresh("bins"), self.target(("u32",))[0]
        word = self.draw.choice(("Add", "Xor", "Or", "Max"))
        text = (
            f"{{ __shared__ u32 {bins}[8];\n__syncthreads();\nif (t < 8) {bins}[t] = t;\n__syncthreads();\n"
            f"if ($2) atomic{word}(&{bins}[$0 & 7], $1);\n__syncthreads();\n{name} = {bins}[t & 7]; }}"
        )
        return Node(
            text, "stmt", (self.expression("u32", scope), self.expression("u32", scope), self.expression("bool", scope))
        )

    def tickets(self, scope: Scope) -> Node:
        """Results of atomics, of which no thread knows its own, but all of them together are known."""
        cell, name = self.fresh("cell"), self.target(("u32",))[0]
        if self.draw.random() < 0.5:
            use, last = f"const u32 n = atomicAdd(&{cell}, 1u); atomicAdd(cells + 9, n * n);", f"{name} += {cell};"
        else:
            use, last = f"atomicXor(cells + 8, atomicExch(&{cell}, $1));", f"if (t == 0) atomicXor(cells + 8, {cell});"
        text = (
            f"{{ __shared__ u32 {cell};\n__syncthreads();\nif (t == 0) {cell} = 0;\n__syncthreads();\n"
            f"if ($0) {{ {use} }}\n__syncthreads();\n{last} }}"
        )
        return Node(text, "stmt", (self.expression("bool", scope), self.expression("u32", scope)))

    def copied_exchange(self, scope: Scope) -> Node:
        name, kind = self.target(("u32", "u64"))
        tile, threads, mask = self.fresh("tile"), self.threads, {"u32": 511, "u64": 255}[kind]
        text = (
            f"{{ __shared__ {kind} {tile}[{threads}];\n__syncthreads();\n"
            f"copy_async(&{tile}[t], (const {kind}*)in + ($0 & {mask}));\nawait_copies();\n"
            f"__syncthreads();\n{name} = {tile}[$1 % {threads}]; }}"
        )
        return Node(text, "stmt", (self.expression("u32", scope, 2), self.expression("u32", scope, 2)))

    def counted_barrier(self, scope: Scope) -> Node:
        word, name = self.draw.choice(("count", "and", "or")), self.target(("u32",))[0]
        return Node(f"{name} = __syncthreads_{word}($0);", "stmt", (self.expression("bool", scope),))
