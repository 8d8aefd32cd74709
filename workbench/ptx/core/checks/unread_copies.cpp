#include "checks/unread_copies.hpp"

#include <algorithm>

#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

void read(PendingCopy& copy, CopyDetail& detail) {
  of_copy_size(copy.bytes, [&](auto size) {
    if (copy.partial) std::memset(detail.values, 0, kLanes * size);
    PTX_FOR_EACH_LANE (lane, copy.mask)
      if (const u32 bytes = copy.partial ? copy.read_by(lane) : size)
        std::memcpy(detail.values + lane * size, copy.source[lane], bytes);
  });
  copy.unread = false;
}

void read(BulkCopy& copy) {
  copy.values.reserve(copy.bytes);
  for (const BulkPiece& piece : copy.pieces)
    if (piece.host) copy.values.insert(copy.values.end(), piece.host, piece.host + piece.bytes);
  copy.unread = false;
}

// Whether a lane may write in the range of addresses. Inactive lanes may give a false yes.
template <class Base>
bool may_write(const Base* bases, s64 offset, u32 bytes, u64 low, u64 high) {
  const u64 begin = low - bytes + 1, last = high - begin - 1;
  u64 outside = ~u64{0};
  PTX_LANES {
    const u64 address = static_cast<Base>(bases[lane] + static_cast<Base>(offset));
    const u64 from_begin = address - begin;
    outside &= from_begin | (last - from_begin);
  }
  return static_cast<s64>(outside) >= 0;
}

bool may_write(u8* registers, const Instruction& in, const Block& block, u64 low, u64 high) {
  const MemoryEffect& effect = block.kernel->effects[static_cast<std::size_t>(block.pc_of(in))];
  if (effect.effect != Effect::stores || block.launch->has_aliases) return true;
  if (in.flags & kNarrowBase)
    return may_write(at<const u32>(registers, in.address), in.offset, effect.bytes, low, high);
  return may_write(at<const u64>(registers, in.address), in.offset, effect.bytes, low, high);
}

template <bool Observed>
void write_after_reads(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Block& block = *warp.block;
  WorkerResult& worker = *block.worker;
  if ((!worker.unread_warps.empty() || !worker.unread_blocks.empty()) &&
      may_write(registers, in, block, worker.unread_low, worker.unread_high))
    read_sources(worker);
  const Handlers& handlers = block.kernel->writers[static_cast<std::size_t>(block.pc_of(in))];
  (Observed ? handlers.observed : handlers.bare)(registers, in, mask, warp);
}

}  // namespace

void expect_read(Warp& warp) {
  if (warp.unread) return;
  warp.unread = true;
  warp.block->worker->unread_warps.push_back(&warp);
}

void expect_read(Block& block, const BulkCopy& load) {
  for (const BulkPiece& piece : load.pieces)
    if (piece.host) block.worker->widen_unread(piece.address, piece.address + piece.bytes);
  if (block.unread) return;
  block.unread = true;
  block.worker->unread_blocks.push_back(&block);
}

void read_sources(WorkerResult& worker) {
  for (Warp* warp : worker.unread_warps) {
    warp->unread = false;
    for (u32 i = 0; i < warp->copies.size(); ++i)
      if (warp->copies[i].unread) read(warp->copies[i], warp->copies.detail(warp->copies[i]));
  }
  for (Block* block : worker.unread_blocks) {
    block->unread = false;
    for (BulkCopy& copy : block->bulk_loads)
      if (copy.unread) read(copy);
  }
  worker.unread_warps.clear(), worker.unread_blocks.clear();
  worker.unread_low = ~u64{0}, worker.unread_high = 0;
}

void put_reads_first(Kernel& kernel, std::vector<Handlers> writers) {
  for (std::size_t i = 0; i < kernel.code.size(); ++i) {
    if (!writers[i].bare) continue;
    kernel.code[i].run = &write_after_reads<false>;
    kernel.code[i].run_observed = &write_after_reads<true>;
  }
  kernel.writers = std::move(writers);
}

bool writes_global(const std::string& name) {
  constexpr const char* kWriters[] = {"st.global.",    "st.generic.",        "atom.global.",
                                      "atom.generic.", "wmma.store.global.", "wmma.store.generic.",
                                      "tensormap."};
  return std::any_of(std::begin(kWriters), std::end(kWriters),
                     [&](const char* each) { return name.starts_with(each); });
}

}  // namespace workbench::ptx
