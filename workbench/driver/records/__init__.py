"""Records of what a process does to its simulated device, and their repetition in another process.

`recording` is for the process that is recorded, `replaying` for the one that repeats it; the entries are those of
library/recording.hpp.
"""
