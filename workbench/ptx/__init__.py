"""The PTX machine: executes the output of NVRTC and Triton exactly, on the CPU.

``Program.from_text(ptx).kernels[name].launch(grid, block, args)`` returns a LaunchReport. The package imports neither
torch nor triton.
"""

from __future__ import annotations

from workbench.ptx.joined import join_reports
from workbench.ptx.launch import PtxKernel
from workbench.ptx.numerics import NumericsLog
from workbench.ptx.options import LaunchOptions
from workbench.ptx.parse import Parameter, PtxSyntaxError
from workbench.ptx.program import Program
from workbench.ptx.recording import Recording, WarpRequest, WarpSpan
from workbench.ptx.report import BufferFacts, Finding, LaunchReport, LineFacts
from workbench.ptx.sample import middles_of, parts_of
from workbench.ptx.tensor_map import TensorMap

__all__ = [
    "BufferFacts",
    "Finding",
    "LaunchOptions",
    "LaunchReport",
    "LineFacts",
    "NumericsLog",
    "Parameter",
    "Program",
    "PtxKernel",
    "PtxSyntaxError",
    "Recording",
    "TensorMap",
    "WarpRequest",
    "WarpSpan",
    "join_reports",
    "middles_of",
    "parts_of",
]
