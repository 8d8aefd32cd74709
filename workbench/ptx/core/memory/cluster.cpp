// mapa, getctarank, barrier.cluster and st.async: how the blocks of a cluster work together.
#include "memory/cluster.hpp"

#include <algorithm>

#include "memory/access.hpp"
#include "memory/mbarrier.hpp"
#include "schedule.hpp"

namespace workbench::ptx {
namespace {

constexpr u64 kBarrierKey = u64{1} << 40;  // key of the barrier's clocks; no flag has it

void misuse(Block& block, const Instruction& in, s32 thread, const std::string& text) {
  block.problem(Problem::remote_misuse, in, thread, 0, 0, text);
}

// mapa: the address in the shared memory of another block, whose rank is the second operand, that
// corresponds to the first operand. A rank that does not exist is a fault only when the address is
// used: CuTe DSL computes addresses for as many blocks as a warp has lanes, and uses some of them.
template <class T>
void map_address(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  constexpr u32 kNoRank = 0xff;
  const T* address = at<const T>(registers, in.elementwise.source[0]);
  const u32* rank = at<const u32>(registers, in.elementwise.source[1]);
  alignas(64) T out[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, mask) {
    const T own = address[lane] & ~(T{0xff} << kRankShift);
    const u32 number = rank[lane] == warp.block->rank ? 0 : std::min(rank[lane], kNoRank - 1) + 1;
    out[lane] = own | static_cast<T>(number) << kRankShift;
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class T>
void rank_of(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const T* address = at<const T>(registers, in.elementwise.source[0]);
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    const u32 rank = static_cast<u32>(address[lane] >> kRankShift) & 0xff;
    out[lane] = rank ? rank - 1 : warp.block->rank;
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

// Begins the next phase: every thread of the cluster that has not exited has arrived in this one.
bool complete(Cluster& cluster) {
  for (const Block* block : cluster.blocks) {
    for (const Warp& warp : *block->warps) {
      PTX_FOR_EACH_LANE (lane, warp.all & ~warp.exited) {
        if (warp.cluster_phase[lane] != cluster.phase) return false;
      }
    }
  }
  cluster.phase += 1;
  Shadow* shadow = cluster.blocks.front()->shadow;
  if (shadow) shadow->clocks.forget(kBarrierKey + cluster.phase % 2);
  return true;
}

void arrive(u8*, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  const u64 phase = block.cluster->phase;
  PTX_FOR_EACH_LANE (lane, mask) {
    if (warp.cluster_phase[lane] == phase)
      misuse(block, in, warp.thread(lane),
             "a second arrival at the cluster's barrier before a wait");
    warp.cluster_phase[lane] = phase;
  }
  // Two flags, used by turns, are enough: a thread that is at the next phase has seen that all
  // waits of the last one are over.
  if (block.shadow)
    block.shadow->clocks.release(warp.agent, kBarrierKey + phase % 2, in.flags & kRelease);
  complete(*block.cluster);
}

void wait(u8*, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  bool late = false;
  PTX_FOR_EACH_LANE (lane, mask) {
    if (warp.cluster_phase[lane] == 0)
      misuse(block, in, warp.thread(lane), "a wait at the cluster's barrier without an arrival");
    late |= warp.cluster_phase[lane] == block.cluster->phase;
  }
  block.polled = late && !complete(*block.cluster);
  if (!block.polled && block.shadow)
    block.shadow->acquire(warp.agent, kBarrierKey + warp.cluster_phase[first_lane(mask)] % 2);
}

// Records a store that an mbarrier of the destination's block counts.
void see_async_store(Block& home, const Instruction& in, Warp& warp, u32 lane, u32 offset,
                     u32 bytes, u32 mbarrier) {
  Shadow& shadow = *home.shadow;
  bool reported = false;
  shadow.async_write_issued(warp, in, lane, offset, bytes, reported);
  shadow.async_write_landed(warp, in, lane, offset, bytes, shadow.clocks.now(warp.agent),
                            Shadow::kNoSwizzle, shadow.landing(mbarrier));
  shadow.clocks.publish(home.flag(mbarrier), shadow.clocks.seen(warp.agent));
  shadow.clocks.fence(warp.agent);
}

// Lets a store land when somebody waits for its mbarrier, as a bulk load does.
void store_late(Block& home, const Instruction& in, Warp& warp, u32 lane, u32 offset, u32 mbarrier,
                const void* from, u32 bytes) {
  BulkCopy copy{.pc = warp.block->pc_of(in), .warp = &warp, .lane = lane, .barrier = mbarrier};
  copy.bytes = bytes;
  copy.values.resize(bytes);
  std::memcpy(copy.values.data(), from, bytes);
  copy.pieces.push_back({copy.values.data(), 0, offset, bytes});
  home.bulk_loads.push_back(std::move(copy));
}

// st.async. The mbarrier is in the same block as the address, and counts the bytes there.
template <class T>
void store_and_count(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  const u32 bytes = sizeof(T) * in.elements;
  resolve<Space::generic>(registers, in, mask, warp, bytes, true, false, request);
  const u32* barrier = at<const u32>(registers, in.store.mbarrier);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    alignas(16) T values[4];
    for (u32 i = 0; i < in.elements; ++i)
      values[i] = at<const T>(registers, in.store.data[i])[lane];
    Block& home = home_of(*warp.block, in, warp.thread(lane), barrier[lane]);
    const u64 offset = plain(home, barrier[lane]);
    if (offset % 8 || offset + 8 > home.launch->shared_bytes) {
      misuse(*warp.block, in, warp.thread(lane), "no mbarrier at offset " + std::to_string(offset));
      continue;
    }
    const u32 to = static_cast<u32>(plain(home, request.address[lane]));
    if (warp.block->launch->schedule && home.shared + to == request.host[lane] &&
        !lands_early(*warp.block)) {
      store_late(home, in, warp, lane, to, static_cast<u32>(offset), values, bytes);
      continue;
    }
    std::memcpy(request.host[lane], values, bytes);
    if (home.shadow) see_async_store(home, in, warp, lane, to, bytes, static_cast<u32>(offset));
    complete_bytes(home, in, warp.thread(lane), static_cast<u32>(offset), bytes);
  }
}

}  // namespace

Block& home_of(Block& block, const Instruction& in, s32 thread, u64 offset) {
  if (!is_remote(block, offset)) return block;
  const u64 rank = (offset >> kRankShift) - 1;
  if (rank >= block.cluster->blocks.size()) {
    throw Stop{{.problem = Problem::remote_misuse,
                .pc = block.pc_of(in),
                .block = block.index,
                .thread = thread,
                .text = "an address of no block of the cluster"}};
  }
  Block& home = *block.cluster->blocks[rank];
  if (home.ended)
    misuse(block, in, thread,
           "a block of the cluster that has ended: wait with barrier.cluster before it does");
  else if (block.cluster->phase == 1)
    misuse(block, in, thread,
           "a block of the cluster that may not have begun: wait with barrier.cluster first");
  return home;
}

void add_clusters(Table& table) {
  const auto add = [&](const char* name, Handler run, Kind kind, const char* destinations,
                       const char* sources) {
    table.push_back({name, run, kind, Class::sync, destinations, sources});
  };
  add("mapa.u32", &map_address<u32>, Kind::plain, "b32", "b32,b32");
  add("mapa.u64", &map_address<u64>, Kind::plain, "b64", "b64,b32");
  add("getctarank.u32", &rank_of<u32>, Kind::plain, "b32", "b32");
  add("getctarank.u64", &rank_of<u64>, Kind::plain, "b32", "b64");
  add("barrier.cluster.arrive", &arrive, Kind::plain, "", "");
  add("barrier.cluster.wait", &wait, Kind::wait, "", "");
  add("st.async.b32", &store_and_count<u32>, Kind::plain, "", "address,b32,address");
  add("st.async.b64", &store_and_count<u64>, Kind::plain, "", "address,b64,address");
}

}  // namespace workbench::ptx
