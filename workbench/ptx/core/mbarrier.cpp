// mbarrier: arrivals counted in 8 bytes of shared memory, phase after phase, and cp.async that arrives when it has landed.
//
// The object is opaque in PTX. Here: bits 0-19 arrivals that the phase still waits for, 20-39 arrivals of every phase, 61
// the phase's parity, 62-63 a mark that memory of all ones or zeros does not have. Slots: 0 result, 1 count, state or
// parity, 8 address. An arrival that waits for copies happens when somebody asks for a phase that needs nothing else: no
// earlier, so that whoever does not ask sees the old bytes.
#include "access.hpp"
#include "async_copy.hpp"

namespace workbench::ptx {
namespace {

constexpr u64 kMost = (1u << 20) - 1;
constexpr u64 kParity = u64{1} << 61, kMark = u64{1} << 62, kMarkMask = u64{3} << 62;

inline u64 pending_of(u64 word) { return word & kMost; }
inline u64 expected_of(u64 word) { return word >> 20 & kMost; }
inline bool is_valid(u64 word) { return (word & kMarkMask) == kMark; }
inline u64 make(u64 parity, u64 expected, u64 pending) { return kMark | parity | expected << 20 | pending; }

inline u64 read_word(const u8* from) {
  u64 word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void misuse(Block& block, const Instruction& in, s32 thread, u64 address, const char* text) {
  const Finding finding{.problem = Problem::mbarrier_misuse, .pc = block.pc_of(in), .block = block.index, .thread = thread,
                        .address = address, .bytes = 8, .text = text};
  if (!block.launch->checks) throw Stop{finding};
  block.note(finding);
}

// The word after `count` arrivals; the phase ends with the last one.
u64 after(Block& block, u64 word, u64 expected, u64 count) {
  const u64 left = pending_of(word) - count, parity = word & kParity;
  if (left) return make(parity, expected, left);
  block.phases += 1;
  return make(parity ^ kParity, expected, expected);
}

void initialise(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  const u32* counts = at<const u32>(registers, in.slot[1]);
  PTX_FOR_EACH_LANE(lane, request.mask) {
    if (counts[lane] == 0 || counts[lane] > kMost)
      misuse(block, in, warp.thread(lane), request.address[lane], "a count outside 1 to 1,048,575");
    const u64 word = make(0, counts[lane] & kMost, counts[lane] & kMost);
    store_lane(warp, in, request, lane, &word, 8);
    std::erase_if(block.async_arrivals, [&](const AsyncArrival& a) { return a.address == request.address[lane]; });
  }
}

void invalidate(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  PTX_FOR_EACH_LANE(lane, request.mask) {
    if (!is_valid(read_word(request.host[lane])))
      misuse(*warp.block, in, warp.thread(lane), request.address[lane], "there is no mbarrier to invalidate");
    const u64 word = ~u64{0};
    store_lane(warp, in, request, lane, &word, 8);
  }
}

// What mbarrier operations other than init and inval do to the shadow: strong, ordered by the caller.
void see(const Instruction& in, Warp& warp, const Request& request, bool is_write) {
  if (warp.block->shadow) check_shared(warp, in, request.address, request.mask, 8, is_write);
}

template <bool Drop, bool Complete>
void arrive(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  see(in, warp, request, true);
  alignas(64) u64 states[kLanes] = {};
  PTX_FOR_EACH_LANE(lane, request.mask) {
    const u64 word = states[lane] = read_word(request.host[lane]), address = request.address[lane];
    const u64 count = in.slot[1] == kNoSlot ? 1 : at<const u32>(registers, in.slot[1])[lane];
    const s32 thread = warp.thread(lane);
    if (!is_valid(word)) {
      misuse(block, in, thread, address, "no mbarrier was initialised here");
    } else if (count == 0 || count > pending_of(word)) {
      misuse(block, in, thread, address, count ? "more arrivals than the phase waits for" : "an arrival that counts nothing");
    } else if (!Complete && count == pending_of(word)) {
      misuse(block, in, thread, address, "an arrival with .noComplete completes the phase");
    } else {
      const u64 fresh = after(block, word, expected_of(word) - (Drop ? count : 0), count);
      std::memcpy(request.host[lane], &fresh, sizeof fresh);
    }
    if (block.shadow && (in.slot[kFlagsSlot] & kRelease)) block.shadow->clocks.release(static_cast<u32>(warp.index), address, true);
  }
  if (in.slot[0] != kNoSlot) write_lanes(registers, in.slot[0], mask, states);
}

// Arrivals with copies at one mbarrier, if nothing else is missing from its phase.
void settle(Block& block, u32 address) {
  u64 waiting = 0;
  for (const AsyncArrival& each : block.async_arrivals)
    if (each.address == address) waiting += static_cast<u64>(count_lanes(each.mask));
  u8* host = block.shared + address;
  const u64 word = read_word(host);
  if (!waiting || !is_valid(word) || waiting < pending_of(word)) return;
  for (const AsyncArrival& each : block.async_arrivals) {
    if (each.address != address) continue;
    const u32 clock = block.shadow ? each.seen[each.warp->index] : 0;
    land_copies(*each.warp, each.last_copy, each.mask, clock);
    if (block.shadow) block.shadow->clocks.publish(address, each.seen);
  }
  std::erase_if(block.async_arrivals, [&](const AsyncArrival& each) { return each.address == address; });
  const u64 fresh = after(block, word, expected_of(word), pending_of(word));
  std::memcpy(host, &fresh, sizeof fresh);
}

// `Parity`: slot 1 is the parity of the phase in question, else the state that an arrival in it returned.
template <bool Parity>
void test(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, false, true, request);
  u32 over = 0;
  PTX_FOR_EACH_LANE(lane, request.mask) {
    if (!block.async_arrivals.empty()) settle(block, static_cast<u32>(request.address[lane]));
    const u64 word = read_word(request.host[lane]);
    if (!is_valid(word)) misuse(block, in, warp.thread(lane), request.address[lane], "no mbarrier was initialised here");
    bool asked;
    if constexpr (Parity) asked = at<const u32>(registers, in.slot[1])[lane] & 1;
    else asked = at<const u64>(registers, in.slot[1])[lane] & kParity;
    over |= (((word & kParity) != 0) != asked ? 1u : 0u) << lane;
  }
  set_predicate(registers, in.slot[0], mask, over);
  block.polled = (request.mask & ~over) != 0;
  if (!block.shadow || !over || !(in.slot[kFlagsSlot] & kRelease)) return;
  Clocks& clocks = block.shadow->clocks;
  clocks.order_lanes(static_cast<u32>(warp.index));
  PTX_FOR_EACH_LANE(lane, over) clocks.acquire(static_cast<u32>(warp.index), request.address[lane]);
}

void pending_count(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u32 out[kLanes];
  const u64* state = at<const u64>(registers, in.slot[1]);
  PTX_LANES { out[lane] = static_cast<u32>(pending_of(state[lane])); }
  write_lanes(registers, in.slot[0], mask, out);
}

// `Counted`: .noinc, the arrival is one of those that the phase waits for anyway; else it waits for one more.
template <bool Counted>
void arrive_after_copies(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  see(in, warp, request, true);
  AsyncArrival arrival{.address = 0, .mask = 0, .warp = &warp, .last_copy = warp.issued};
  if (block.shadow) {
    Clocks& clocks = block.shadow->clocks;
    std::copy_n(clocks.seen(static_cast<u32>(warp.index)), Clocks::kWarps, arrival.seen);
    clocks.fence(static_cast<u32>(warp.index));
  }
  PTX_FOR_EACH_LANE(lane, request.mask) {
    const u64 word = read_word(request.host[lane]);
    if (!is_valid(word)) {
      misuse(block, in, warp.thread(lane), request.address[lane], "no mbarrier was initialised here");
      continue;
    }
    if (!Counted) {
      if (pending_of(word) == kMost) misuse(block, in, warp.thread(lane), request.address[lane], "more than 1,048,575 arrivals");
      const u64 fresh = make(word & kParity, expected_of(word), (pending_of(word) + 1) & kMost);
      std::memcpy(request.host[lane], &fresh, sizeof fresh);
    }
    const u32 address = static_cast<u32>(request.address[lane]);
    if (arrival.mask && arrival.address != address) {
      block.async_arrivals.push_back(arrival);
      arrival.mask = 0;
    }
    arrival.address = address, arrival.mask |= 1u << lane;
  }
  if (arrival.mask) block.async_arrivals.push_back(arrival);
}

}  // namespace

void add_mbarriers(Table& table) {
  const auto add = [&](const char* name, Handler run, const char* destinations, const char* sources, Kind kind = Kind::plain) {
    table.push_back({name, run, kind, Class::sync, destinations, sources});
  };
  add("mbarrier.init.shared.b64", &initialise, "", "address,b32");
  add("mbarrier.inval.shared.b64", &invalidate, "", "address");
  add("mbarrier.arrive.shared.b64", &arrive<false, true>, "b64", "address,b32");
  add("mbarrier.arrive.noComplete.shared.b64", &arrive<false, false>, "b64", "address,b32");
  add("mbarrier.arrive_drop.shared.b64", &arrive<true, true>, "b64", "address,b32");
  add("mbarrier.arrive_drop.noComplete.shared.b64", &arrive<true, false>, "b64", "address,b32");
  add("mbarrier.test_wait.shared.b64", &test<false>, "pred", "address,b64", Kind::poll);
  add("mbarrier.test_wait.parity.shared.b64", &test<true>, "pred", "address,b32", Kind::poll);
  add("mbarrier.pending_count.b64", &pending_count, "b32", "b64");
  add("cp.async.mbarrier.arrive.shared.b64", &arrive_after_copies<false>, "", "address");
  add("cp.async.mbarrier.arrive.noinc.shared.b64", &arrive_after_copies<true>, "", "address");
}

}  // namespace workbench::ptx
