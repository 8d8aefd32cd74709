"""Stop inside a launch: step, go back, and see which line wrote a number. Begin with `session`.

`opening` starts a launch in a thread of its own, `control` gives the core's debugger its orders, `stops` turns lines
and conditions into the core's watches, `state` reads registers, memory and waits.
"""

from workbench.launch.debug.opening import debug_kernel
from workbench.launch.debug.places import DebugPlace
from workbench.launch.debug.session import DebugSession
from workbench.launch.debug.state import ElementWriter, RegisterView
from workbench.launch.debug.stops import Stop
from workbench.launch.debug.waits import BarrierState, CopyState, MbarrierState, WarpGroup, WarpState

__all__ = [
    "BarrierState",
    "CopyState",
    "DebugPlace",
    "DebugSession",
    "ElementWriter",
    "MbarrierState",
    "RegisterView",
    "Stop",
    "WarpGroup",
    "WarpState",
    "debug_kernel",
]
