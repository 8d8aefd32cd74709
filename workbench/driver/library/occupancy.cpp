// Occupancy: the blocks of a kernel that fit on a multiprocessor, computed by
// workbench.toolchain.occupancy, and the values derived from it.
#include <algorithm>

#include "driver.hpp"

namespace workbench::driver {

namespace {

u32 blocks_that_fit(Call& call, const Function& function, u64 threads, u32 dynamic_shared) {
  u32 blocks = 0;
  ask(call, hooks().occupancy, function.module, function.name.c_str(), static_cast<u32>(threads),
      dynamic_shared, &blocks);
  return blocks;
}

}  // namespace

u32 blocks_per_multiprocessor(Call& call, const Function& function, u64 threads,
                              u32 dynamic_shared) {
  const u32 most = function.facts.max_threads;
  if (most && threads > most) return 0;
  return blocks_that_fit(call, function, threads, dynamic_shared);
}

namespace {

int attribute(int which) { return state().attributes.at(which); }

std::shared_ptr<Function> function_for(CUfunction handle, int threads) {
  const auto function = find_handle(state().functions, handle, "function");
  if (threads < 1 || threads > attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) {
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  "blocks have 1 to " +
                      std::to_string(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) +
                      " threads, not " + std::to_string(threads)};
  }
  return function;
}

}  // namespace
}  // namespace workbench::driver

using namespace workbench::driver;

CU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, CUfunction handle,
                                                            int threads, std::size_t dynamic_shared,
                                                            unsigned) {
  return entry([&](Call& call) {
    int& blocks = needed(out, "blocks");
    const auto function = function_for(handle, threads);
    const u32 shared = static_cast<u32>(std::min<std::size_t>(dynamic_shared, 1u << 30));
    blocks = static_cast<int>(
        blocks_per_multiprocessor(call, *function, static_cast<u64>(threads), shared));
  });
}

CU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction handle, int threads,
                                                   std::size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, handle, threads, dynamic_shared,
                                                              0);
}

// The largest block with which the most threads are resident, and the number of such blocks that
// fill the device.
CU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_out, int* block_out, CUfunction handle,
                                                 CUoccupancyB2DSize shared_of,
                                                 std::size_t dynamic_shared, int limit, unsigned) {
  return entry([&](Call& call) {
    int &grid = needed(grid_out, "grid"), &block = needed(block_out, "block");
    const auto function = function_for(handle, 1);
    int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    if (function->facts.max_threads)
      most = std::min(most, static_cast<int>(function->facts.max_threads));
    if (limit > 0) most = std::min(most, limit);
    int resident = 0, blocks = 0;
    grid = block = 0;
    for (int aligned = (most + 31) / 32 * 32;
         aligned > 0 && resident < attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
         aligned -= 32) {
      const int threads = std::min(aligned, most);
      std::size_t shared = dynamic_shared;
      if (shared_of) {
        call.lock.unlock();
        shared = shared_of(threads);
        call.lock.lock();
      }
      const u32 room = static_cast<u32>(std::min<std::size_t>(shared, 1u << 30));
      blocks = static_cast<int>(
          blocks_per_multiprocessor(call, *function, static_cast<u64>(threads), room));
      if (blocks * threads > resident) {
        resident = blocks * threads, block = threads;
        grid = blocks * attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
      }
    }
  });
}

CU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                        CUoccupancyB2DSize shared_of, std::size_t dynamic_shared,
                                        int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared_of, dynamic_shared,
                                                   limit, 0);
}

CU_API cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* out, CUfunction handle, int blocks,
                                               int threads) {
  return entry([&](Call& call) {
    std::size_t& room = needed(out, "bytes");
    const auto function = function_for(handle, threads);
    if (blocks < 1 ||
        static_cast<u32>(blocks) >
            blocks_per_multiprocessor(call, *function, static_cast<u64>(threads), 0)) {
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    std::to_string(blocks) + " blocks of " + std::to_string(threads) +
                        " threads do not fit, even without dynamic shared memory"};
    }
    constexpr int kUnit = 128;
    const int share = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / blocks /
                      kUnit * kUnit;
    const int own = static_cast<int>(function->facts.static_shared);
    const int of_block =
        std::min(share - attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
                 attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    room = static_cast<std::size_t>(std::max(of_block - own, 0));
  });
}

// The clusters that a device runs at a time, as if any of its multiprocessors could form one; a GPU
// whose clusters do not divide a group of multiprocessors runs fewer. CuTe DSL calls this with
// blocks of 128 threads for a kernel that was compiled for blocks of one, so the kernel's own limit
// does not count.
CU_API cuOccupancyMaxActiveClusters(int* out, CUfunction handle, const CUlaunchConfig* config) {
  return entry([&](Call& call) {
    int& clusters = needed(out, "clusters");
    const CUlaunchConfig& c = needed(config, "config");
    const u64 threads = u64{c.blockDimX} * c.blockDimY * c.blockDimZ;
    const int most_threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const auto function = function_for(
        handle, static_cast<int>(std::min(threads, static_cast<u64>(most_threads) + 1)));
    u64 size = 1;
    for (unsigned i = 0; i < c.numAttrs; ++i) {
      const CUlaunchAttribute& given = (&needed(c.attrs, "attributes"))[i];
      if (given.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      for (unsigned extent : given.value.dimensions) size *= extent;
    }
    constexpr u64 kMostBlocks = 16;  // of a cluster
    if (size == 0 || size > kMostBlocks)
      throw Refused{CUDA_ERROR_INVALID_VALUE,
                    "a cluster of " + std::to_string(size) + " blocks, allowed are 1 to 16"};
    const u64 blocks = blocks_that_fit(call, *function, threads, c.sharedMemBytes);
    const u64 all = blocks * static_cast<u64>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    clusters = static_cast<int>(all / size);
  });
}
