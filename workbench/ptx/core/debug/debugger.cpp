#include "debug/debugger.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "checks/waits.hpp"
#include "memory/access.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {

// ---- orders ----

void Debugger::go(Order order) {
  {
    std::lock_guard lock(mutex_);
    order_ = std::move(order);
    ordered_ = true;
    status_ = Status::running;
  }
  changed_.notify_all();
}

bool Debugger::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return status_ != Status::running; });
}

void Debugger::close() {
  {
    std::lock_guard lock(mutex_);
    status_ = Status::closed;
  }
  changed_.notify_all();
}

void Debugger::rest(Status status, const Finding* finding) {
  std::unique_lock lock(mutex_);
  has_finding_ = finding != nullptr;
  if (finding) finding_ = *finding;
  status_ = status;
  changed_.notify_all();
  changed_.wait(lock, [&] { return ordered_; });
  ordered_ = false, paused_ = false;
}

// Begins an order where the launch stands.
void Debugger::obey() {
  if (order_.unwinds()) {
    unwinds_ = true;
    throw Unwind{};
  }
  begin_order();
}

void Debugger::begin_order() {
  hit_ = {}, hits_ = 0;
  befores_.assign(order_.watches.size(), {});
  is_settled_ = true, stops_behind_ = false;
  mark_code();
}

bool Debugger::again() {
  blocks_.clear(), before_all_.clear();
  before_ = nullptr, warp_ = nullptr, pc_ = -1, lanes_ = 0;
  while (!unwinds_) {
    rest(Status::ended);
    unwinds_ = order_.unwinds();
  }
  unwinds_ = false;
  if (order_.ends) return false;
  const UndoLog::Place place = log.restore(static_cast<std::size_t>(order_.place));
  count_ = armed_ = place.index;
  launch_->next_block = place.turn;
  launch_->lowest_fault = INT64_MAX;
  launch_->stop = false, launch_->idle = false;
  launch_->waits->expect(1);
  WorkerResult& result = *result_;
  result.instructions = place.instructions, result.lanes = place.lanes;
  result.printed.resize(place.printed);
  result.findings = {}, result.faulted = false, result.error = nullptr;
  result.unread_warps.clear(), result.unread_blocks.clear();
  result.unread_low = ~u64{0}, result.unread_high = 0;
  result.factors.reset(), result.sources.reset();
  seen_.clear();
  renew_();
  begin_order();
  return true;
}

// ---- the course of a launch ----

void Debugger::attach(Launch& launch, WorkerResult& result, std::function<void()> renew) {
  launch_ = &launch, result_ = &result, renew_ = std::move(renew);
  marks_.assign(launch.kernel->code.size(), 0);
  lines.resize(launch.kernel->code.size());
  mark_code();
}

void Debugger::enter(Block& block, Warp& warp) {
  if (warp_ == &warp && before_) return;
  warp_ = &warp;
  before_ = &before_all_.try_emplace(&warp, -1).first->second;
  if (std::find(blocks_.begin(), blocks_.end(), &block) == blocks_.end()) blocks_.push_back(&block);
}

void Debugger::begin(s64 turn, u64 instructions, u64 lanes) {
  log.begin({turn, count_, instructions, lanes, result_->printed.size()});
}

void Debugger::starts(Block& block) {
  if (std::find(blocks_.begin(), blocks_.end(), &block) == blocks_.end()) blocks_.push_back(&block);
  for (const Warp& warp : *block.warps) before_all_[&warp] = -1;
  for (std::size_t i = 0; i < befores_.size(); ++i)
    if (order_.watches[i].space == Watch::Space::shared) befores_[i].bytes.clear();
}

void Debugger::fault(const Finding& finding) {
  inside_ = true;
  rest(Status::faulted, &finding);
  inside_ = false;
  obey();
}

void Debugger::note(const Finding& finding) {
  if (!order_.findings) return;
  const std::tuple key(finding.problem, finding.pc, finding.other_pc);
  if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) return;
  seen_.push_back(key);
  inside_ = true;
  rest(Status::stopped, &finding);
  inside_ = false, armed_ = count_;
  obey();
}

void Debugger::examine(s32 pc, u32 lanes) {
  if (!is_settled_) settle();
  bool stops = stops_behind_ || count_ >= order_.limit || paused_;
  if (!stops && count_ >= armed_)
    for (std::size_t i = 0; i < order_.watches.size() && !stops; ++i) stops = matches(i, pc, lanes);
  if (stops) {
    rest(Status::stopped);
    obey();
    armed_ = count_ + 1;
  }
  if (judges_) prepare(pc, lanes);
  if (marks_[static_cast<std::size_t>(pc)] & stores) keep_stores(pc, lanes);
}

// ---- watches ----

// Whether this instruction is one that a watch may match before it is executed.
bool Debugger::marks(const Watch& watch, std::size_t pc) const {
  if (!watch.pcs.empty() &&
      !std::binary_search(watch.pcs.begin(), watch.pcs.end(), static_cast<s32>(pc)))
    return false;
  if (watch.births) return pc < results.size() && !results[pc].empty();
  if (watch.space == Watch::Space::nowhere) return true;
  const MemoryEffect& effect = launch_->kernel->effects[pc];
  const auto other =
      watch.space == Watch::Space::shared ? MemoryEffect::global : MemoryEffect::shared;
  if (effect.window == other) return false;
  if (effect.effect == Effect::stores) return watch.writes || (watch.reads && effect.reads);
  return effect.effect == Effect::reads && watch.reads;
}

void Debugger::mark_code() {
  slow_ = judges_ = false;
  for (const Watch& watch : order_.watches) {
    judges_ |= watch.births || (watch.writes && watch.space != Watch::Space::nowhere);
    slow_ |= watch.outlives || (watch.writes && watch.space != Watch::Space::nowhere);
  }
  for (std::size_t pc = 0; pc < marks_.size(); ++pc) {
    marks_[pc] = writers_of_global[pc] == WritesGlobal::nothing ? 0 : stores;
    for (const Watch& watch : order_.watches)
      if (marks(watch, pc)) marks_[pc] |= watch.births ? bears : watched;
  }
  next_.store(slow_ ? 0 : order_.limit, std::memory_order_relaxed);
  if (paused_) look_closely();
}

const Block* Debugger::block(s64 index) const {
  for (const Block* one : blocks_)
    if (one->index == index && !one->ended) return one;
  return nullptr;
}

std::vector<const Block*> Debugger::blocks() const {
  std::vector<const Block*> running;
  for (const Block* one : blocks_)
    if (!one->ended) running.push_back(one);
  return running;
}

bool Debugger::is_over(const Watch& watch) const {
  const Block* const home = block(watch.block);
  return !home || (*home->warps)[static_cast<std::size_t>(watch.warp)].done();
}

// The lanes by which a warp matches a watch that has no memory and no births.
u32 Debugger::lanes_of(const Watch& watch, s32 pc, u32 lanes) const {
  if (watch.block >= 0 && warp_->block->index != watch.block) return 0;
  if (watch.warp >= 0 && warp_->index != watch.warp) return 0;
  if (watch.enters) {
    const s32 from = *before_;
    if (from >= 0 && from < pc &&
        lines[static_cast<std::size_t>(from)] == lines[static_cast<std::size_t>(pc)])
      return 0;
  }
  return watch.condition.holds(*warp_, lanes & watch.lanes);
}

bool Debugger::matches(std::size_t number, s32 pc, u32 lanes) {
  const Watch& watch = order_.watches[number];
  const Hit here{.watch = static_cast<s32>(number),
                 .index = count_,
                 .pc = pc,
                 .block = warp_->block->index,
                 .warp = warp_->index,
                 .lanes = lanes};
  if (watch.outlives && is_over(watch)) return take(number, here);
  if (watch.births || !marks(watch, static_cast<std::size_t>(pc))) return false;
  u32 found = lanes;
  if (watch.space != Watch::Space::nowhere) {
    found = touching(watch, pc, lanes);
    if (found && watch.writes) befores_[number].explained = true;
    if (!found) return false;
  }
  found = lanes_of(watch, pc, found);
  // An instruction that no lane executes is an event, too, for a watch that asks for no lanes.
  const bool any = watch.condition.steps.empty() && watch.lanes == kAllLanes &&
                   watch.space == Watch::Space::nowhere && !lanes && lanes_of(watch, pc, 1);
  if (!found && !any) return false;
  Hit hit = here;
  hit.lanes = found;
  return take(number, hit);
}

// Counts a match. Returns whether the launch stops.
bool Debugger::take(std::size_t number, const Hit& hit) {
  Before& before = befores_[number];
  if (before.passed < order_.watches[number].skip) {
    ++before.passed;
    return false;
  }
  ++hits_;
  hit_ = hit;
  return !order_.remembers;
}

void Debugger::found_behind(std::size_t number, s32 pc, s64 block, s32 warp, u32 lanes) {
  if (!count_ || count_ - 1 < armed_) return;  // the launch has stopped there
  const Hit hit{.watch = static_cast<s32>(number),
                .index = count_ - 1,
                .pc = pc,
                .block = block,
                .warp = warp,
                .lanes = lanes,
                .past = true};
  if (!take(number, hit)) return;
  stops_behind_ = true;
  look_closely();
}

// Before an instruction: keeps what settle() compares.
void Debugger::prepare(s32 pc, u32 lanes) {
  latest_ = {pc, warp_->block->index, warp_, lanes};
  for (std::size_t i = 0; i < order_.watches.size(); ++i) {
    const Watch& watch = order_.watches[i];
    Before& before = befores_[i];
    if (watch.births) {
      if (!(marks_[static_cast<std::size_t>(pc)] & bears)) continue;
      before.clean = lanes_of(watch, pc, lanes);
      before.clean &= ~special(sources[static_cast<std::size_t>(pc)], lanes, watch.births);
      is_settled_ &= !before.clean;
    } else if (watch.space != Watch::Space::nowhere && watch.writes) {
      if (const u8* bytes = watched_bytes(watch); bytes && before.bytes.empty())
        before.bytes.assign(bytes, bytes + (watch.end - watch.begin));
      before.explained = touching(watch, pc, lanes) != 0;
      is_settled_ = false;
    }
  }
  if (!is_settled_) look_closely();
}

// After an instruction: judges what it did.
void Debugger::settle() {
  is_settled_ = true;
  next_.store(slow_ ? 0 : order_.limit, std::memory_order_relaxed);
  if (paused_) look_closely();
  for (std::size_t i = 0; i < order_.watches.size(); ++i) {
    const Watch& watch = order_.watches[i];
    Before& before = befores_[i];
    if (watch.births) {
      const u32 clean = std::exchange(before.clean, 0);
      if (!clean) continue;
      Warp* const now = std::exchange(warp_, latest_.warp);
      const auto& written = results[static_cast<std::size_t>(latest_.pc)];
      const u32 born = special(written, clean, watch.births);
      warp_ = now;
      if (born) found_behind(i, latest_.pc, latest_.block, latest_.warp->index, born);
    } else if (watch.space != Watch::Space::nowhere && watch.writes) {
      const u8* const bytes = watched_bytes(watch);
      if (!bytes || before.bytes.empty()) continue;
      if (!std::memcmp(bytes, before.bytes.data(), before.bytes.size())) continue;
      std::memcpy(before.bytes.data(), bytes, before.bytes.size());
      if (before.explained) continue;
      if (watch.block >= 0 && watch.block != latest_.block) continue;
      if (watch.warp >= 0 && watch.warp != latest_.warp->index) continue;
      found_behind(i, latest_.pc, latest_.block, latest_.warp->index, latest_.lanes);
    }
  }
}

// ---- registers ----

namespace {

// The lanes of a register that are NaN (1) or infinite (2); `infinity` has the bits of that, with
// which NaNs begin. Most registers have neither, which shows in one pass.
template <class Bits>
u32 special_lanes(const u8* from, Bits infinity, u32 count, u32 kinds) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0} >> 1);
  const Bits* const lanes = reinterpret_cast<const Bits*>(from);
  Bits most = 0;
  for (u32 i = 0; i < count; ++i) {
    const Bits magnitude = lanes[i] & kMagnitude;
    most = magnitude > most ? magnitude : most;
  }
  if (most < infinity) return 0;
  u32 found = 0;
  for (u32 i = 0; i < count; ++i) {
    const Bits magnitude = lanes[i] & kMagnitude;
    const bool is = magnitude > infinity ? kinds & 1 : magnitude == infinity && kinds & 2;
    found |= (is ? 1u : 0u) << i * kLanes / count;
  }
  return found;
}

u32 special_lanes(const u8* registers, const FloatPlace& place, u32 kinds) {
  const u8* const from = registers + place.slot;
  const u32 count = place.pair ? 2 * kLanes : kLanes;
  switch (place.type) {
    case Condition::Op::f16: return special_lanes<u16>(from, 0x7c00, count, kinds);
    case Condition::Op::bf16: return special_lanes<u16>(from, 0x7f80, count, kinds);
    case Condition::Op::f64_: return special_lanes<u64>(from, 0x7ff0ull << 48, count, kinds);
    default: return special_lanes<u32>(from, 0x7f800000, count, kinds);
  }
}

}  // namespace

// The lanes in which some of the registers are NaN (1) or infinite (2).
u32 Debugger::special(const std::vector<FloatPlace>& places, u32 lanes, u32 kinds) const {
  u32 found = 0;
  for (const FloatPlace& place : places) {
    const u32 here = special_lanes(warp_->registers, place, kinds) & lanes;
    if (here && place.across) return lanes;
    found |= here;
  }
  return found;
}

// ---- memory ----

u64 Debugger::address_of(s32 pc, u32 lane) const {
  const Instruction& in = launch_->kernel->code[static_cast<std::size_t>(pc)];
  if (in.flags & kNarrowBase)
    return at<const u32>(warp_->registers, in.address)[lane] + static_cast<u32>(in.offset);
  return at<const u64>(warp_->registers, in.address)[lane] + static_cast<u64>(in.offset);
}

const u8* Debugger::watched_bytes(const Watch& watch) const {
  if (watch.space == Watch::Space::shared) {
    const Block* const home = block(watch.block);
    return home && watch.end <= launch_->shared_bytes ? home->shared + watch.begin : nullptr;
  }
  for (const Buffer& buffer : launch_->buffers)
    if (watch.begin >= buffer.address && watch.end <= buffer.address + buffer.size)
      return buffer.host + (watch.begin - buffer.address);
  return nullptr;
}

// The lanes whose load, store or atomic touches the memory of a watch.
u32 Debugger::touching(const Watch& watch, s32 pc, u32 lanes) const {
  const MemoryEffect& effect = launch_->kernel->effects[static_cast<std::size_t>(pc)];
  if (effect.effect != Effect::reads && effect.effect != Effect::stores) return 0;
  const bool is_shared = watch.space == Watch::Space::shared;
  if (is_shared && warp_->block->index != watch.block && warp_->block->cluster->blocks.size() < 2)
    return 0;
  if (effect.window == (is_shared ? MemoryEffect::global : MemoryEffect::shared)) return 0;
  u32 found = 0;
  PTX_FOR_EACH_LANE (lane, lanes) {
    u64 address = address_of(pc, lane);
    if (effect.window == MemoryEffect::generic && in_shared(address) != is_shared) continue;
    if (is_shared) {
      address &= kWindowMask;
      const Block& own = *warp_->block;
      const u64 rank = is_remote(own, address) ? (address >> kRankShift) - 1 : own.rank;
      if (own.cluster->blocks[rank]->index != watch.block) continue;
      address = plain(own, address);
    }
    const bool touches = address < watch.end && address + effect.bytes > watch.begin;
    found |= (touches ? 1u : 0u) << lane;
  }
  return found;
}

// Bytes that one lane of an instruction may write from its address on: more for a matrix, whose
// rows are apart.
u64 Debugger::written_bytes(s32 pc, u32 lane) const {
  const std::size_t place = static_cast<std::size_t>(pc);
  const Instruction& in = launch_->kernel->code[place];
  switch (writers_of_global[place]) {
    case WritesGlobal::map: return kMapBytes;
    case WritesGlobal::matrix: {
      constexpr u64 kMostRows = 32;
      const operands::Fragment& part = in.fragment;
      const u64 stride = part.stride == kNoSlot
                             ? part.leading
                             : at<const u32>(warp_->registers, part.stride)[lane];
      return (stride + 1) * kMostRows * part.bits / 8;
    }
    default: return launch_->kernel->effects[place].bytes;
  }
}

// Keeps what the lanes of an instruction are about to overwrite.
void Debugger::keep_stores(s32 pc, u32 lanes) {
  const std::size_t place = static_cast<std::size_t>(pc);
  const bool word = launch_->kernel->code[place].flags & kWordOfElement;
  const Block& block = *warp_->block;
  PTX_FOR_EACH_LANE (lane, lanes) {
    u64 address = address_of(pc, lane), bytes = written_bytes(pc, lane);
    if (address >= kSharedWindow) continue;
    const Buffer* buffer = block.find(address, 1);
    // A word may begin or end outside the buffer that its element is in.
    while (!buffer && word && bytes > 1) buffer = block.find(++address, 1), --bytes;
    if (!buffer) continue;
    log.keep(*buffer, address - buffer->address, bytes);
    if (writers_of_global[place] == WritesGlobal::plain)
      wrote(address, bytes, pc, block.index, warp_->thread(lane));
  }
}

void Debugger::writes(Block& block, s32 pc, s32 thread, u64 address, u64 bytes) {
  const Buffer* const buffer = block.find(address, 1);
  if (!buffer) return;
  log.keep(*buffer, address - buffer->address, bytes);
  wrote(address, bytes, pc, block.index, thread);
  for (std::size_t i = 0; i < order_.watches.size(); ++i) {
    const Watch& watch = order_.watches[i];
    if (watch.space != Watch::Space::global || !watch.writes) continue;
    if (address >= watch.end || address + bytes <= watch.begin) continue;
    befores_[i].explained = true;
    if ((watch.block < 0 || watch.block == block.index) &&
        (watch.warp < 0 || watch.warp == thread / kLanes))
      found_behind(i, pc, block.index, thread / kLanes, 1u << thread % kLanes);
  }
}

void Debugger::lands(const Block& block, s32 pc, s32 thread, u64 offset, u64 bytes) {
  for (std::size_t i = 0; i < order_.watches.size(); ++i) {
    const Watch& watch = order_.watches[i];
    if (watch.space != Watch::Space::shared || !watch.writes || watch.block != block.index)
      continue;
    if (offset >= watch.end || offset + bytes <= watch.begin) continue;
    befores_[i].explained = true;
    if (watch.warp < 0 || watch.warp == thread / kLanes)
      found_behind(i, pc, block.index, thread / kLanes, 1u << thread % kLanes);
  }
}

void Debugger::record_writers(u64 begin, u64 end, u32 element) {
  writers_begin_ = begin, writers_end_ = end, writers_element_ = std::max(element, 1u);
  writers_.assign((end - begin + writers_element_ - 1) / writers_element_, Writer{0, -1, -1, -1});
}

void Debugger::wrote(u64 address, u64 bytes, s32 pc, s64 block, s32 thread) {
  if (address >= writers_end_ || address + bytes <= writers_begin_) return;
  const u64 first = std::max(address, writers_begin_),
            end = std::min(address + bytes, writers_end_);
  const u64 from = (first - writers_begin_) / writers_element_;
  const u64 to = (end - 1 - writers_begin_) / writers_element_;
  for (u64 i = from; i <= to; ++i) writers_[i] = {count_, block, thread, pc};
}

}  // namespace workbench::ptx
