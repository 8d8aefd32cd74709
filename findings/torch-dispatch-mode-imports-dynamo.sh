#!/usr/bin/env bash
# The first operator under any TorchDispatchMode imports the whole of torch._dynamo.
#
# Versions: torch 2.13.0.
# Behaviour: a mode that counts or records operators, used once and without torch.compile, imports about 90 modules of
# torch._dynamo and more than 800 modules in all: about a CPU second in each process. A
# tool that starts many short processes (a judge, a test runner) pays it in each.
# Output seen: 0 modules of torch._dynamo before the first operator, 93 after it; 0.9 CPU seconds on a 2026 server core.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def dynamo():
    return sum(name.startswith("torch._dynamo") for name in sys.modules)


one = torch.ones(2)
before, modules, start = dynamo(), len(sys.modules), time.process_time()
with Passing():
    one + one
print(f"{before} modules of torch._dynamo before, {dynamo()} after; {len(sys.modules) - modules} modules more in all, "
      f"{time.process_time() - start:.1f} CPU seconds")
assert before == 0
assert dynamo() > 50
PYTHON
