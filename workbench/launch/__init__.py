"""Kernels of the user: loaded from CUDA C++ or PTX, launched with validated arguments, checked and traced."""

from workbench.analysis.check_report import CheckReport
from workbench.analysis.counts import InstructionCounts, MachineCode
from workbench.analysis.lines import TracedLine, lines_of
from workbench.analysis.summary import Fact, Summary
from workbench.analysis.trace import Trace
from workbench.analysis.traffic import Traffic
from workbench.launch.checking import check_kernel, trace_kernel
from workbench.launch.loading import Kernel, Module, load_cuda
from workbench.launch.loading_ptx import load_ptx
from workbench.launch.variables import Variable, Variables

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
