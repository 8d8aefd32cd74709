"""The main program of pytest-xdist's workers: forks of what has collected go on from there, other processes begin."""

import inspect
import sys

from xdist import remote

if __name__ == "__channelexec__":
    if "warm.collected" in sys.modules:
        sys.modules["warm.collected"].work(channel)  # noqa: F821
    else:
        exec(compile(inspect.getsource(remote), remote.__file__, "exec"))
