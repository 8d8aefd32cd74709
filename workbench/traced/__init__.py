"""The values that ``wb.trace`` and ``wb.trace_kernel`` return, and how they read."""

from workbench.traced.counts import InstructionCounts, MachineCode
from workbench.traced.lines import TracedLine, lines_of
from workbench.traced.summary import Fact, Summary
from workbench.traced.trace import Trace
from workbench.traced.traffic import Traffic

__all__ = ["Fact", "InstructionCounts", "MachineCode", "Summary", "Trace", "TracedLine", "Traffic", "lines_of"]
