"""A kernel of the user's own: loaded from CUDA C++, launched with checked arguments, checked and traced."""

from workbench.kernels.checking import check_kernel
from workbench.kernels.loading import Kernel, Module, load_cuda
from workbench.kernels.loading_ptx import load_ptx
from workbench.kernels.tracing import trace_kernel
from workbench.kernels.variables import Variable, Variables
from workbench.reports.check_report import CheckReport
from workbench.reports.counts import InstructionCounts, MachineCode
from workbench.reports.lines import TracedLine, lines_of
from workbench.reports.summary import Fact, Summary
from workbench.reports.trace import Trace
from workbench.reports.traffic import Traffic

__all__ = [
    "CheckReport",
    "Fact",
    "InstructionCounts",
    "Kernel",
    "MachineCode",
    "Module",
    "Summary",
    "Trace",
    "TracedLine",
    "Traffic",
    "Variable",
    "Variables",
    "check_kernel",
    "lines_of",
    "load_cuda",
    "load_ptx",
    "trace_kernel",
]
