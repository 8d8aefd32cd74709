"""Functions of CUDA's library of functions (libdevice) in PTX, put back for exact comparison.

``expf``, ``logf``, ``log2f``, ``log10f``, ``log1pf``, ``expm1f``, ``tanhf`` and ``erff`` are inlined, by NVRTC as by
Triton: they take a power of two from their argument by its bits, and a polynomial of what is left. On elements of a
ring (``LaunchOptions.exact``) neither has a meaning. Any power of two may be taken out, however, so that here it is
the power 0; and what a polynomial stands for is known by its coefficients: `functions_in` replaces its last
instruction by the function. ``erff`` becomes a fixed function of its argument, like ``sin``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.ptx.float_bits import exponents_in
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import ParsedModule, Statement

_FLOAT = re.compile(r"0[fF][0-9a-fA-F]{8}$")
_ONE, _LOG2_E, _LN_2 = "0f3F800000", "0f3FB8AA3B", "0f3F317218"
_EXPONENT_FROM = (0xC0D5_5555, 0xC0CA_FB0D, 0xC0C0_0000)  # added to bits to round an exponent: log, log2, log1p
_INFINITE = 0x7F80_0000
_SIGN = 0x8000_0000
_LOG1P = {"0f3EAAAA78", "0f3EAAAAE6"}  # the coefficient of f^3 in log(1 + f), of logf and of log1pf
_EXPM1 = "0f3EFFFFFE"  # of f^2 in exp(f) - 1
_LOG2 = "0fBF38AA3B"  # of f^2 in log2(1 + f)
_TANH = "0fBEAAA9ED"  # of x^3
_TANH_IS_ONE, _ERF_IS_FAR = "0f41102CB4", "0f3F8060FE"  # bounds of |x|
_FALSE, _TRUE = "setp.ne.s32 {0}, 0, 0", "setp.eq.s32 {0}, 0, 0"


def functions_in(statements: Sequence[Statement]) -> dict[int, str]:
    """Return what to write in place of a statement, by its offset in the PTX."""
    return _Functions(statements).found


class _One:
    """A statement, its operands and its place in the order of the text."""

    def __init__(self, statement: Statement, place: int):
        self.start, self.guard, self.negated, self.place = statement.start, statement.guard, statement.negated, place
        self.head, _, self.rest = statement.opcode.partition(".")
        self.operands = split_operands(statement.operands)
        self.type = statement.opcode.rpartition(".")[2]

    @property
    def result(self) -> str:
        return self.operands[0] if self.operands else ""


class _Functions:
    def __init__(self, statements: Sequence[Statement]):
        self.found: dict[int, str] = {}
        self.all = [_One(one, place) for place, one in enumerate(statements)]
        self.of: dict[str, list[_One]] = {}
        for one in self.all:
            for name in one.result.strip("{} ").replace("|", ",").split(","):
                self.of.setdefault(name.strip(), []).append(one)
        self._exponentials()
        self._logarithms()
        self._far_from_zero()
        for one in self.all:
            if one.head == "fma" and one.type == "f32" and one.start not in self.found:
                self._polynomial(one)

    # ---- values

    def made(self, name: str, head: str) -> _One | None:
        """Return the statement of that opcode that makes a register's value, if it is the only one, through moves."""
        for _ in range(8):
            found = self.of.get(name, [])
            if len(found) != 1 or found[0].guard:
                return None
            if found[0].head == head:
                return found[0]
            if found[0].head != "mov":
                return None
            name = found[0].operands[1]
        return None

    def origin(self, name: str) -> str:
        """Return the register that a register is a copy of."""
        while (copy := self.made(name, "mov")) is not None and copy.operands[1] in self.of:
            name = copy.operands[1]
        return name

    def float(self, name: str) -> str:
        """Return a float constant as written in PTX, or "" for what is none."""
        if not _FLOAT.match(name):
            copy = self.made(name, "mov")
            name = copy.operands[1] if copy else ""
        return f"0f{name[2:].upper()}" if _FLOAT.match(name) else ""

    @staticmethod
    def integer(name: str) -> int | None:
        """Return an integer constant of 32 bits."""
        try:
            return int(name.rstrip("U"), 0) % (1 << 32)
        except ValueError:
            return None

    def replace(self, one: _One, *instructions: str) -> None:
        guard = f"@{'!' if one.negated else ''}{one.guard} " if one.guard else ""
        self.found[one.start] = " ".join(f"{guard}{text.format(*one.operands)};" for text in instructions)

    def call(self, one: _One, x: str, *instructions: str) -> None:
        """Replace a statement by instructions that make its result, {0}, of a register {x}.

        The register must still hold what it held when the statement's other operands were made.
        """
        before = [other.place for name in one.operands[1:] if name != x for other in self.of.get(name, [])]
        since = max((place for place in before if place < one.place), default=one.place)
        if since < one.place and not any(since <= other.place < one.place for other in self.of.get(x, [])):
            self.replace(one, *(text.replace("{x}", x) for text in instructions))

    # ---- powers of two

    def _exponentials(self) -> None:
        """Take out 2^n for n = 0: it is made by adding n to 1.5 * 2^23 and shifting the bits of the sum."""
        begin = len(self.found)
        for one in self.all:
            if one.head == "fma" and one.rest.startswith("rm"):
                if [self.float(x) for x in one.operands[2:4]] == ["0f437C0000", "0f4B400001"]:
                    self.replace(one, "mov.b32 {0}, 0f4B40007F")
            elif one.head == "cvt" and one.rest.startswith("rni") and one.type == "f32" and self._of_expm1(one):
                self.replace(one, "mov.b32 {0}, 0f00000000")
        if len(self.found) > begin:
            for one in self.all:
                if one.head == "fma" and self.float(one.operands[2]) == "0f32A57060":  # the rest of log2(e)
                    self.replace(one, "mov.b32 {0}, {3}")

    def _of_expm1(self, one: _One) -> bool:
        scaled = self.made(one.operands[1], "mul")
        known = any(x.head == "mov" and self.float(x.result) == _EXPM1 for x in self.all)
        return known and scaled is not None and self.float(scaled.operands[2]) == _LOG2_E

    def _logarithms(self) -> None:
        """Take out no exponent: it is made of the bits of a number, to which a constant is added."""
        anchors, sources = set(), set()
        for one in self.all:
            if one.head == "add" and one.type == "s32" and self.integer(one.operands[2]) in _EXPONENT_FROM:
                anchors.add(one.result)
                sources.add(self.origin(one.operands[1]))
                self.replace(one, "mov.b32 {0}, 0")
        if not anchors:
            return
        for one in self.all:
            if one.head == "sub" and one.type == "s32" and one.operands[1] in self.of:
                mask = self.made(one.operands[2], "and")
                if mask is not None and mask.operands[1] in anchors:
                    sources.add(self.origin(one.operands[1]))
                    if self.integer(one.operands[1]) is None and not self._constant(one.operands[1]):
                        self.replace(one, "mov.b32 {0}, {1}")
            elif one.head == "selp" and self.float(one.operands[1]) == "0fC1B80000":  # -23 for a subnormal number
                test = self.made(one.operands[3], "setp")
                if test is not None and self.float(test.operands[2]) == "0f00800000":
                    self.replace(test, _FALSE)
        for one in self.all:
            if one.head == "setp" and one.type == "u32" and self.origin(one.operands[1]) in sources:
                bound = self.integer(one.operands[2])
                if one.rest.startswith("lt.") and bound == _INFINITE:
                    self.replace(one, _TRUE)
                elif one.rest.startswith("gt.") and bound == _INFINITE - 1:
                    self.replace(one, _FALSE)

    def _constant(self, name: str) -> bool:
        copy = self.made(name, "mov")
        return copy is not None and self.integer(copy.operands[1]) is not None

    # ---- polynomials, by their last coefficients

    def _fma(self, name: str, x: str, constant: str | set[str]) -> _One | None:
        """Return the fma of a register and x with a constant that makes a register's value."""
        one = self.made(name, "fma")
        known = {constant} if isinstance(constant, str) else constant
        return one if one and one.operands[2] == x and self.float(one.operands[3]) in known else None

    def _product(self, name: str, x: str) -> str:
        """Return the other factor of a product with x; "" if there is none."""
        one = self.made(name, "mul")
        others = [other for other in one.operands[1:3] if other != x] if one else []
        return others[0] if len(others) == 1 else ""

    def _polynomial(self, one: _One) -> None:
        _, a, x, c = one.operands
        if x == c:
            if (half := self._fma(self._product(a, x), x, "0fBF000000")) and self._fma(half.operands[1], x, _LOG1P):
                self.call(
                    one, x, f"add.f32 {{0}}, {{x}}, {_ONE}", "lg2.approx.f32 {0}, {0}", f"mul.f32 {{0}}, {{0}}, {_LN_2}"
                )
            elif self._fma(self._product(a, x), x, _EXPM1):
                minus = f"sub.f32 {{0}}, {{0}}, {_ONE}"
                self.call(one, x, f"mul.f32 {{0}}, {{x}}, {_LOG2_E}", "ex2.approx.f32 {0}, {0}", minus)
            elif (whole := self.made(a, "fma")) and self._fma(whole.operands[1], whole.operands[2], _TANH):
                self.call(one, x, "tanh.approx.f32 {0}, {x}")
            elif (side := self.made(x, "selp")) and side.operands[2] in self.erf_of:
                self.call(one, side.operands[2], *_ERF)
        elif self.float(x) == _LOG2_E and self._fma(self._product(self._product(c, a), a), a, _LOG2):
            self.call(one, a, f"add.f32 {{0}}, {{x}}, {_ONE}", "lg2.approx.f32 {0}, {0}")

    # ---- what tanh and erf are where the argument is large: their sign is put to it by bits

    def _far_from_zero(self) -> None:
        self.erf_of: set[str] = set()
        for one in self.all:
            size = self.made(one.operands[1], "abs") if one.head == "setp" and one.type == "f32" else None
            if size is not None and self.float(one.operands[2]) == _ERF_IS_FAR:
                self.erf_of.add(self.origin(size.operands[1]))
        for one in self.all:
            sign = None
            if one.head == "copysign":
                x = one.operands[1]
            else:
                sign = self.made(one.operands[1], "and") if one.head == "or" else None
                if sign is None or self.integer(sign.operands[2]) != _SIGN:
                    continue
                x = sign.operands[1]
            if function := self._with_sign(self.origin(x), one.operands[2]):
                self.call(one, x, *function)
                if sign is not None and one.start in self.found:
                    self.replace(sign, "mov.b32 {0}, 0")

    def _with_sign(self, x: str, size: str) -> Sequence[str]:
        """Return the instructions of the function that has such a value of the sign of x."""
        chosen, less = self.made(size, "selp"), self.made(size, "sub")
        if chosen and self.float(chosen.operands[1]) == _ONE:
            test = self.made(chosen.operands[3], "setp")
            if test and self.float(test.operands[2]) == _TANH_IS_ONE:
                return ("tanh.approx.f32 {0}, {x}",)
        if less and self.float(less.operands[1]) == _ONE and self.made(less.operands[2], "ex2") and x in self.erf_of:
            return _ERF
        return ()


_ERF = ("sin.approx.f32 {0}, {x}", "cos.approx.f32 {0}, {0}")


def with_functions(module: ParsedModule, statements: Sequence[Statement]) -> str:
    """Return a module's PTX with the functions of the library put back. Lines keep their numbers.

    A power of two that is taken from a float by a mask becomes 32: programs divide by it and multiply by it again, so
    that any will do.
    """
    source, found = module.source, functions_in(statements)
    for one in exponents_in(statements):
        found.setdefault(one.start, f"mov.b32 {split_operands(one.operands)[0]}, 0f42000000;")
    pieces, position = [], 0
    for start in sorted(found):
        end = module.text.index(";", start) + 1
        pieces += [source[position:start], found[start], "\n" * source.count("\n", start, end)]
        position = end
    return "".join([*pieces, source[position:]])
