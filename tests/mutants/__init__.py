"""Mutants: wrong programs made of right ones by one slip at a random place, which a suite has to catch.

`python` makes them of a module's syntax tree, `ptx` of the PTX of a kernel, by the operators of `ptx_operators` on one
`ptx_instruction`; `judged` is the judge of right kernels and mutants alike, `attention_settings` the running example's
kernels with the configurations and cases that their mutants face.
"""
