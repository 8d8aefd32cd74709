"""Run every kernel variant of paged attention once on a GPU and check it: something for a sanitizer or a profiler.

python gpu_once.py NUM_SEQS CONTEXT [VARIANT...]; the exit status is the number of wrong results.
"""

import dataclasses
import sys

import torch

from workbench import devices
from workbench.ops.paged_attention import OP, case

num_seqs, context, *names = sys.argv[1:]
device, wrong = devices.get("cuda"), 0
for variant in OP.variants:
    if variant.language == "torch" or (names and variant.name not in names):
        continue
    one = case("llama-3-8b", num_seqs=int(num_seqs), context=int(context), dtype="bfloat16")
    one = dataclasses.replace(one, layout="nhd" if "nhd" in variant.layouts else variant.layouts[0])
    config = variant.default_config(one.problem(arch=device.arch))
    problem = one.problem(config, arch=device.arch)
    tensors = one.inputs(problem, "cuda")
    variant.run(config, problem, tensors, device)
    torch.cuda.synchronize()
    check = one.check(tensors.out)
    wrong += not check.ok
    print(f"{variant.name}: {check}", flush=True)
sys.exit(wrong)
