"""Sweeps in files, ours and those of other tuners: read, checked, replayed instead of a device, used to calibrate.

Begin at `sweep_record.py`.
"""
