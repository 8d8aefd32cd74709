"""CuTe DSL: a matrix copied by tensor maps that the DSL's host code writes; with "fault" one of too many rows."""

import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack

ROWS, COLUMNS, TILE = 128, 96, (64, 32)
MAPPED_ROWS = 192 if "fault" in sys.argv else ROWS


@cute.struct
class Storage:
    """The mbarrier and the tile of a block."""

    barrier: cute.struct.MemRange[cutlass.Int64, 1]
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE[0] * TILE[1]], 1024]


@cute.kernel
def copy_kernel(
    load: cute.CopyAtom,
    source: cute.Tensor,
    store: cute.CopyAtom,
    target: cute.Tensor,
    layout: cute.ComposedLayout,
):
    row, column, _ = cute.arch.block_idx()
    storage = cutlass.utils.SmemAllocator().allocate(Storage)
    barrier = storage.barrier.data_ptr()
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(barrier, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    tile = cute.group_modes(storage.tile.get_tensor(layout.outer, swizzle=layout.inner), 0, 2)
    parts = [
        cpasync.tma_partition(
            atom, 0, cute.make_layout(1), tile, cute.group_modes(cute.local_tile(whole, TILE, (None, None)), 0, 2)
        )
        for atom, whole in ((load, source), (store, target))
    ]
    (shared, taken), (_, given) = parts
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, TILE[0] * TILE[1] * 4)
    cute.copy(load, taken[(None, row, column)], shared, tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    cute.copy(store, shared, given[(None, row, column)])
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def copy(source: cute.Tensor, target: cute.Tensor):
    layout = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout(TILE, stride=(TILE[1], 1)))
    rows = cute.make_layout((MAPPED_ROWS, COLUMNS), stride=(COLUMNS, 1))
    load, taken = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), source, layout, TILE)
    store, given = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), cute.make_tensor(target.iterator, rows), layout, TILE
    )
    grid = (MAPPED_ROWS // TILE[0], COLUMNS // TILE[1], 1)
    copy_kernel(load, taken, store, given, layout).launch(grid=grid, block=(32, 1, 1), cluster=(1, 1, 1))


source = torch.randn(ROWS, COLUMNS, device="cuda")
target = torch.zeros_like(source)
copy(from_dlpack(source, assumed_align=16), from_dlpack(target, assumed_align=16))
torch.cuda.synchronize()
torch.testing.assert_close(target, source)
print("right")
