// clusterlaunchcontrol: a cluster takes over the work of one that has not begun.
//
// The answer to a request is opaque in PTX. Here: a word that is 1 if there was such a cluster, and
// where in the grid its first block stands.
#include "access.hpp"
#include "bulk_copy.hpp"
#include "cluster.hpp"
#include "mbarrier.hpp"

namespace workbench::ptx {
namespace {

struct Answer {
  u32 given = 0, place[3] = {};
};

// PTX lets a request fail at any time: with checks, in one of the two orders of warps, all of them
// do.
Answer answer_to(Launch& launch) {
  if (launch.checks && launch.last_warp_first) return {};
  const s64 index = take_next(launch);
  if (index < 0) return {};
  const u64 first = static_cast<u64>(index), across = launch.grid[0], down = launch.grid[1];
  return {1,
          {static_cast<u32>(first % across), static_cast<u32>(first / across % down),
           static_cast<u32>(first / across / down)}};
}

// The answer is there at once; who has not waited for the mbarrier reads it too early.
void deliver(Block& target, const Answer& answer, const Instruction& in, Warp& warp, u32 lane,
             u32 offset, u32 mbarrier) {
  constexpr u32 bytes = sizeof(Answer);
  if (target.shadow) {
    Shadow& shadow = *target.shadow;
    bool reported = false;
    shadow.async_write_issued(warp, in, lane, offset, bytes, reported);
    shadow.check_initialised(warp, in, lane, mbarrier);
    shadow.async_write_landed(warp, in, lane, offset, bytes, shadow.clocks.now(warp.agent),
                              Shadow::kNoSwizzle, shadow.landing(mbarrier));
    shadow.clocks.publish(target.flag(mbarrier), shadow.clocks.seen(warp.agent));
  }
  std::memcpy(target.shared + offset, &answer, bytes);
  complete_bytes(target, in, warp.thread(lane), mbarrier, bytes);
}

void try_cancel(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  const u32 size = block.launch->shared_bytes;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u32 offset = static_cast<u32>(
        plain(block, shared_offset(registers, in.bulk.shared, in.bulk.shared_offset,
                                   in.flags & BulkFlags::shared_wide, lane)));
    const u32 mbarrier = static_cast<u32>(
        plain(block, shared_offset(registers, in.bulk.mbarrier, in.bulk.mbarrier_offset,
                                   in.flags & BulkFlags::barrier_wide, lane)));
    if (offset % sizeof(Answer) || mbarrier % 8 || offset + sizeof(Answer) > size ||
        mbarrier + 8 > size) {
      block.problem(Problem::bulk_misuse, in, warp.thread(lane), 0, 0,
                    "an answer at offset " + std::to_string(offset) +
                        " of shared memory, where a multiple of 16 inside belongs, or an mbarrier "
                        "at offset " +
                        std::to_string(mbarrier));
      continue;
    }
    const Answer answer = answer_to(*block.launch);
    if (in.flags & BulkFlags::all_blocks)
      for (Block* target : block.cluster->blocks)
        deliver(*target, answer, in, warp, lane, offset, mbarrier);
    else
      deliver(block, answer, in, warp, lane, offset, mbarrier);
    if (block.shadow) block.shadow->clocks.fence(warp.agent);
  }
}

}  // namespace

void add_cluster_control(Table& table) {
  table.push_back({"clusterlaunchcontrol.try_cancel", &try_cancel, Kind::timed, Class::sync, "",
                   "address,address"});
}

}  // namespace workbench::ptx
