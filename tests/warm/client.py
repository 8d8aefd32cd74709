"""Stands for a process that the server forks: ``client.py SOCKET ARGUMENTS...``, run with -I -S to start at once."""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    path, *words = sys.argv[1:]
    variables = dict(os.environ)
    connection = socket.socket(socket.AF_UNIX)
    try:
        if "PYTHONPATH" in variables:  # what is first on it may change what is imported
            raise OSError
        connection.connect(path)
    except OSError:
        os.execv(sys.executable, [sys.executable, *words])
    # What comes before the process is there waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    request = json.dumps({"words": words, "folder": os.getcwd(), "variables": variables}).encode()
    socket.send_fds(connection, [len(request).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(request)
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # who reads a stream to its end waits for the process alone
    answers = connection.makefile("rb")
    number = int(answers.readline())
    for one in FORWARDED:
        signal.signal(one, lambda received, frame: os.kill(number, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    status = os.waitstatus_to_exitcode(int(answers.readline() or 9))
    if status < 0:
        if -status in FORWARDED:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
