"""Causal attention for Blackwell: rescaling, tensor memory and machine code."""

import pytest
from test_flash_attention_one_architecture import configurations

from workbench.attention.ops.causal_attention import CausalAttentionCase
from workbench.attention.ops.causal_attention.cuda_tcgen05 import VARIANT
from workbench.ptx import Program

pytestmark = pytest.mark.usefixtures("own_home")
ARCH = "sm_100"
SMALL = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 2}
CONFIGURATIONS = configurations(VARIANT, ARCH)


def test_slack():
    """A row's output is rescaled where its maximum grows by more than the slack allows, and right either way."""
    one = CausalAttentionCase("growing", 1, 1, 64, 300, num_seqs=1, num_queries=40, dtype="float16", lse=True)
    problem, executed = one.problem(arch=ARCH), []
    for slack in (0, 8):
        config = {**SMALL, "RESCALE_ABOVE": slack}
        kernel = VARIANT.kernels(config, problem, ARCH, machine_code=False)[0]
        tensors = one.inputs(problem)
        launch = VARIANT.launch(config, problem, tensors)
        report = Program.from_text(kernel.ptx)[kernel.name].launch(
            launch.grid, launch.block, launch.arguments, shared_bytes=launch.shared_bytes, checks=True, statistics=True
        )
        assert report.findings == []
        assert one.check(tensors.out).ok
        executed.append(sum(line.executions for line in report.lines if line.text.startswith("tcgen05.st")))
    assert executed[0] > executed[1] > 0


@pytest.mark.parametrize(("config", "head_size"), CONFIGURATIONS)
@pytest.mark.sampled(len(CONFIGURATIONS))
def test_machine_code(config, head_size):
    """No spills, and all tensor memory that the blocks of a multiprocessor allocate is there."""
    problem = CausalAttentionCase("code", 2, 1, head_size, 200, dtype="bfloat16").problem(arch=ARCH)
    kernel = VARIANT.compile(config, problem, ARCH)
    assert kernel.spill_bytes == 0
    assert kernel.static_shared_bytes + kernel.dynamic_shared_bytes <= 227 * 1024
    blocks = kernel.occupancy.blocks_per_sm
    assert blocks >= 1
    columns = config["BLOCK_M"] // 128 * (config["BLOCK_N"] + head_size)
    assert blocks * 2 ** (columns - 1).bit_length() <= 512
    assert kernel.sass.count("UTCHMMA") >= (head_size + config["BLOCK_N"]) // 16
