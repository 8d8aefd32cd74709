#include "unread_copies.hpp"

#include <algorithm>

namespace workbench::ptx {
namespace {

void read(PendingCopy& copy) {
  of_copy_size(copy.bytes, [&](auto size) {
    if (copy.partial) std::memset(copy.values, 0, kLanes * size);
    PTX_FOR_EACH_LANE (lane, copy.mask)
      if (const u32 bytes = copy.partial ? copy.read_by(lane) : size)
        std::memcpy(copy.values + lane * size, copy.source[lane], bytes);
  });
  copy.unread = false;
}

void read(BulkCopy& copy) {
  copy.values.reserve(copy.bytes);
  for (const BulkPiece& piece : copy.pieces)
    if (piece.host) copy.values.insert(copy.values.end(), piece.host, piece.host + piece.bytes);
  copy.unread = false;
}

template <bool Observed>
void write_after_reads(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Block& block = *warp.block;
  WorkerResult& worker = *block.worker;
  if (!worker.unread_warps.empty() || !worker.unread_blocks.empty()) read_sources(worker);
  const Handlers& handlers = block.kernel->writers[static_cast<std::size_t>(block.pc_of(in))];
  (Observed ? handlers.observed : handlers.bare)(registers, in, mask, warp);
}

}  // namespace

void expect_read(Warp& warp) {
  if (warp.unread) return;
  warp.unread = true;
  warp.block->worker->unread_warps.push_back(&warp);
}

void expect_read(Block& block) {
  if (block.unread) return;
  block.unread = true;
  block.worker->unread_blocks.push_back(&block);
}

void read_sources(WorkerResult& worker) {
  for (Warp* warp : worker.unread_warps) {
    warp->unread = false;
    for (u32 i = 0; i < warp->copies.size(); ++i)
      if (warp->copies[i].unread) read(warp->copies[i]);
  }
  for (Block* block : worker.unread_blocks) {
    block->unread = false;
    for (BulkCopy& copy : block->bulk_loads)
      if (copy.unread) read(copy);
  }
  worker.unread_warps.clear(), worker.unread_blocks.clear();
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
