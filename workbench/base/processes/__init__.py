"""Run something in another process: one way to start it, to ask it, to limit it and to end it.

`worker.Worker` calls functions in a process that may hang or crash; `executor.OwnProcesses` is an executor of them.
`fork_server.ForkServer` has a process that prepares once, and forks a fresh copy of itself for each task. Both are a
`process.Process`: it is started with a function to run, sent framed messages (`channel.Channel`), and ended together
with what it has started (`ending`). Each answer may have a limit in seconds, each process one of memory; an error says
what ended a process: its exit status, a signal, the limit. `handing_out.HandedOut` hands items to any executor's
workers, some of which may die of them.

What a process may do beside that is the affair of whoever starts it, as is what its answers are decoded by.
"""
