"""Set-up of the driver's clients: PyCUDA, CuPy, CuTe DSL, nvcc and others find and use this package's libraries.

`../CLIENTS.md` lists the clients.
"""
