#include "numerics/log.hpp"

namespace workbench::ptx::numerics {

u32 Origins::find(const u8* at, u16 bits) const {
  const u64 address = reinterpret_cast<std::uintptr_t>(at);
  const auto page = pages_.find(address / kPage);
  if (page == pages_.end()) return 0;
  const u64 unit = address % kPage / kUnit;
  return page->second->bits[unit] == bits ? page->second->event[unit] : 0;
}

void Origins::put(const u8* at, u16 bits, u32 event) {
  const u64 address = reinterpret_cast<std::uintptr_t>(at);
  std::unique_ptr<Page>& page = pages_[address / kPage];
  if (!page) page = std::make_unique<Page>();
  const u64 unit = address % kPage / kUnit;
  page->bits[unit] = bits, page->event[unit] = event;
}

void Log::begin(std::size_t instructions, std::size_t register_bytes) {
  launch_ += 1;
  tallies_.assign(instructions, {});
  lasts_.assign(instructions, {});
  register_bytes_ = register_bytes;
  blocks_.clear(), registers_.clear(), inputs_.clear();
  last_ = nullptr, last_origins_ = nullptr;
  errors_.assign(follows_errors ? instructions : 0, {});
  register_shadows_.clear();
  last_shadowed_ = nullptr, last_shadows_ = nullptr;
}

RegisterShadows& Log::shadows(const Warp& warp) {
  if (warp.registers == last_shadowed_) return *last_shadows_;
  RegisterShadows& found = register_shadows_[warp.registers];
  if (found.singles.bits.empty()) {
    found.singles.resize(register_bytes_ / 4);
    found.halves.resize(register_bytes_ / 2);
  }
  last_shadowed_ = warp.registers, last_shadows_ = &found;
  return found;
}

MemoryShadows& Log::shadows(const Block& block, bool of_block) {
  return of_block ? of(block).shadows : global_shadows_;
}

Log::OfBlock& Log::of(const Block& block) {
  OfBlock& known = blocks_[&block];
  if (known.index != block.index) {
    known.index = block.index;
    known.origins.clear(), known.shadows.clear();
  }
  return known;
}

RegisterOrigins* Log::find_registers(const Warp& warp) {
  const auto found = registers_.find(warp.registers);
  if (found == registers_.end()) return nullptr;
  RegisterOrigins& origins = found->second;
  if (origins.block != warp.block->index) {
    origins.block = warp.block->index;
    std::fill(origins.event.begin(), origins.event.end(), 0u);
  }
  last_ = warp.registers, last_origins_ = &origins;
  return &origins;
}

void Log::put(const Warp& warp, u32 unit, u32 event) {
  RegisterOrigins* known = find_registers(warp);
  if (!known) {
    if (!event) return;
    known = &registers_[warp.registers];
    known->block = warp.block->index;
    known->event.resize(register_bytes_ / kUnit), known->bits.resize(register_bytes_ / kUnit);
    last_ = warp.registers, last_origins_ = known;
  }
  known->event[unit] = event, known->bits[unit] = bits_at(warp, unit);
}

Origins& Log::memory(const Block& block, bool of_block) {
  return of_block ? of(block).origins : global_;
}

u32 Log::find_event(Event event, s32 pc, u32 parent) const {
  for (u32 before = parent; before; before = events_[before].parent)
    if (events_[before].pc == pc && events_[before].launch == launch_ &&
        events_[before].event == event)
      return before;
  const auto found = known_.find(key(event, pc, parent));
  return found == known_.end() ? 0 : found->second;
}

}  // namespace workbench::ptx::numerics
