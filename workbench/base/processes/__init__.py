"""Work in another process: one way to start it, to ask it, to limit it and to end it.

`worker.Worker` calls functions in a process that may hang or crash; `executor.OwnProcesses` is an executor of workers.
`fork_server.ForkServer` keeps a process that prepares once, and forks a fresh copy of itself for each task. Both use a
`process.Process`: it is started with a function to run, sent framed messages (`channel.Channel`), and ended together
with what it has started (`ending`). Each answer may have a time limit in seconds, each process a memory limit; an error
names what ended a process: its exit status, a signal, the limit. `handing_out.HandedOut` hands items to any executor's
workers, and survives items that end their worker.

A caller adds what else limits its process, such as a sandbox, and decodes the answers.
"""
