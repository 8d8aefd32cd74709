"""Commands of a debug session as lines of text, as ``workbench debug`` reads them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from workbench.errors import UnknownNameError, WorkbenchError
from workbench.launch.debug.session import DebugSession

HELP = """\
step [N]     back [N]         the next, or latest, source line of this warp
ni [N]       pi [N]           an instruction, of whatever warp
barrier      block            the next barrier of this warp; the next block
go [STOP]    goback [STOP]    the next, or latest, STOP; without one, of those set by "stop"
end          goto INDEX       the end of the launch; an instruction of its history
last TARGET                   the last write of y[3, 5], %f3 or a variable
stop STOP    stops  remove N  set a stop: 12 if lane == 3; write y[3, 5]; nan; finding; barrier
print TEXT   regs   operands  a register, a variable, an array or an expression; all live registers
where  list  warps  waits     where the launch stands
finish       quit             let the launch run on; end it here"""


class SessionTerminal:
    """Runs commands on a session, one a line, and yields what they show."""

    def __init__(self, session: DebugSession):
        self.session = session
        s = session
        self._moves: Mapping[str, Callable[..., Any]] = {
            "step": s.step, "back": s.back, "ni": s.next_instruction, "pi": s.previous_instruction,
            "goto": s.goto,
        }  # fmt: skip
        self._plain: Mapping[str, Callable[[], Any]] = {
            "barrier": s.next_barrier, "block": s.next_block, "end": s.to_end, "finish": s.finish,
            "where": lambda: s.where, "list": s.listing, "stops": lambda: self._numbered(s.stops),
            "warps": lambda: "\n".join(map(str, s.warps())), "waits": lambda: "\n".join(s.waits()),
            "regs": lambda: "\n".join(map(str, s.registers().values())),
            "operands": lambda: "\n".join(map(str, s.operands().values())), "help": lambda: HELP,
        }  # fmt: skip
        self._with_text: Mapping[str, Callable[[str], Any]] = {
            "go": lambda text: s.go(*([text] if text else [])),
            "goback": lambda text: s.go_back(*([text] if text else [])),
            "last": s.last_write, "stop": s.stop, "print": self._value, "remove": self._remove,
        }  # fmt: skip

    @staticmethod
    def _numbered(stops: Iterable[object]) -> str:
        return "\n".join(f"{number}: {stop}" for number, stop in enumerate(stops)) or "none"

    def _remove(self, number: str) -> str:
        stops = self.session.stops
        if not number.isdecimal() or int(number) >= len(stops):
            known = ", ".join(map(str, range(len(stops)))) or "none"
            raise UnknownNameError("stop", repr(number), known, "The command stops lists them.")
        stops.pop(int(number))
        return self._numbered(stops)

    def _value(self, text: str) -> Any:
        session = self.session
        name, bracket, index = text.partition("[")
        if name.strip() in session.memory.arrays:
            array = session.tensor(name.strip())
            return array[session.memory.index(name.strip(), index.rstrip().removesuffix("]"))] if bracket else array
        if text.startswith("%") or text.isidentifier():
            return session.register(text)
        return session.evaluate(text)

    def execute(self, line: str) -> str:
        """Run one command and return what it shows. Raises the errors of the session, and for an unknown command."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if name in self._moves:
            return str(self._moves[name](*map(int, shlex.split(rest))))
        if name in self._with_text:
            return str(self._with_text[name](rest))
        if name in self._plain:
            return str(self._plain[name]())
        known = ", ".join([*self._moves, *self._plain, *self._with_text, "quit"])
        raise UnknownNameError("command", repr(name), known, "The command help says what they do.")

    def run(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield what each command shows, or its error as text; ``quit`` and ``finish`` are the last."""
        for line in lines:
            if not line.strip():
                continue
            if line.strip() == "quit":
                return
            try:
                yield self.execute(line)
            except (WorkbenchError, ValueError) as error:
                yield f"{type(error).__name__}: {error}"
            if line.strip() == "finish":
                return


def typed_lines() -> Iterator[str]:
    """Yield the lines of the standard input, with a prompt in a terminal."""
    while True:
        if sys.stdin.isatty():
            print("(debug) ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line
