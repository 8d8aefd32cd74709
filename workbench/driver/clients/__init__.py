"""Set-up of the driver's clients: what PyCUDA, CuPy, CuTe DSL, nvcc and others need to find and use our libraries.

`../CLIENTS.md` lists the clients.
"""
