// mbarrier: counts arrivals and bytes in 8 bytes of shared memory, phase after phase; also arrivals
// of cp.async that happen when the copies have landed.
//
// An arrival that waits for copies, and a bulk copy, happen when a thread tests a phase that lacks
// nothing else. They do not happen earlier, so that code without a test sees the old bytes.
#include "memory/mbarrier.hpp"

#include "matrices/tensor_memory.hpp"
#include "memory/access.hpp"
#include "memory/async_copy.hpp"
#include "memory/bulk_copy.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

using Word = MbarrierWord;

void misuse(Block& block, const Instruction& in, s32 thread, u64 address, const char* text) {
  block.problem(Problem::mbarrier_misuse, in, thread, address, 8, text);
}

// The word after a change: if the phase may be over, that of the next phase.
Word settled(Block& block, u64 address, bool parity, u64 expected, u64 pending, s64 bytes) {
  if (pending || bytes) return {parity, expected, pending, bytes};
  block.phases += 1;
  if (block.shadow) block.shadow->phase_over(static_cast<u32>(address & kOffsetMask));
  if (block.recorder) block.recorder->complete(static_cast<u32>(address & kOffsetMask));
  return {!parity, expected, expected, 0};
}

void initialise(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  const u32* counts = at<const u32>(registers, in.mbarrier.operand);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    if (counts[lane] == 0 || counts[lane] > Word::kMost)
      misuse(block, in, warp.thread(lane), request.address[lane], "a count outside 1 to 1,048,575");
    const Word word(false, counts[lane] & Word::kMost, counts[lane] & Word::kMost, 0);
    store_lane(warp, in, request, lane, &word.bits, 8);
    if (block.shadow) block.shadow->initialised(warp, in, static_cast<u32>(request.address[lane]));
    if (block.recorder) block.recorder->initialise(static_cast<u32>(request.address[lane]));
    std::erase_if(block.async_arrivals,
                  [&](const AsyncArrival& a) { return a.address == request.address[lane]; });
  }
}

void invalidate(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    if (!Word(request.host[lane]).valid())
      misuse(*warp.block, in, warp.thread(lane), request.address[lane],
             "there is no mbarrier to invalidate");
    const u64 word = ~u64{0};
    store_lane(warp, in, request, lane, &word, 8);
  }
}

// Shows mbarrier operations other than init and inval to the shadow: they are strong, and the
// caller orders them.
void see(const Instruction& in, Warp& warp, const Request& request, bool is_write) {
  if (warp.block->shadow) check_shared(warp, in, request.address, request.mask, 8, is_write);
}

// Resolves the mbarriers of arrivals: those of this block, or with .shared::cluster of any block in
// the cluster.
void resolve_arrivals(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                      Request& request) {
  if (in.flags & kClusterBase)
    return resolve<Space::generic>(registers, in, mask, warp, 8, true, true, request);
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  see(in, warp, request, true);
}

// Counts bytes at the mbarrier that a lane names. Returns false if there is none.
bool count_bytes(Block& block, const Instruction& in, s32 thread, u64 address, u8* host,
                 s64 bytes) {
  const Word word(host);
  if (!word.valid()) {
    misuse(block, in, thread, address, "no mbarrier was initialised here");
    return false;
  }
  const s64 sum = word.bytes() + bytes;
  if (sum < -static_cast<s64>(Word::kMost) || sum > static_cast<s64>(Word::kMost)) {
    misuse(block, in, thread, address, "more than 1,048,575 bytes expected in one phase");
    return false;
  }
  // Expected bytes never end a phase, as the arrival that comes with them is outstanding.
  const Word fresh =
      bytes > 0 ? Word(word.parity(), word.expected(), word.pending(), sum)
                : settled(block, address, word.parity(), word.expected(), word.pending(), sum);
  fresh.store(host);
  return true;
}

template <bool Drop, bool Complete>
void arrive(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve_arrivals(registers, in, mask, warp, request);
  alignas(64) u64 states[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, request.mask) {
    const u64 address = request.address[lane];
    const u64 count =
        in.mbarrier.operand == kNoSlot ? 1 : at<const u32>(registers, in.mbarrier.operand)[lane];
    const s32 thread = warp.thread(lane);
    const u64 bytes =
        in.mbarrier.expected == kNoSlot ? 0 : at<const u32>(registers, in.mbarrier.expected)[lane];
    if (in.mbarrier.expected != kNoSlot &&
        !count_bytes(block, in, thread, address, request.host[lane], static_cast<s64>(bytes)))
      continue;
    const Word word(request.host[lane]);
    states[lane] = word.bits;
    if (!word.valid()) {
      misuse(block, in, thread, address, "no mbarrier was initialised here");
    } else if (count == 0 || count > word.pending()) {
      misuse(block, in, thread, address,
             count ? "more arrivals than the phase waits for" : "an arrival that counts nothing");
    } else if (!Complete && count == word.pending()) {
      misuse(block, in, thread, address, "an arrival with .noComplete completes the phase");
    } else {
      Block& home = home_of(block, in, thread, address);
      record_event(home, in, warp, RecordedEvent::arrive, address, count, bytes);
      settled(home, address, word.parity(), word.expected() - (Drop ? count : 0),
              word.pending() - count, word.bytes())
          .store(request.host[lane]);
    }
    if (block.shadow && (in.flags & kRelease))
      block.shadow->clocks.release(warp.agent, block.flag(address), true);
  }
  if (in.mbarrier.result != kNoSlot) write_lanes(registers, in.mbarrier.result, mask, states);
}

// expect_tx and complete_tx.
template <int Sign>
void count_transaction(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve_arrivals(registers, in, mask, warp, request);
  const u32* bytes = at<const u32>(registers, in.mbarrier.operand);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    Block& home = home_of(*warp.block, in, warp.thread(lane), request.address[lane]);
    // The write of a red.async is valid for threads that wait for the mbarrier.
    if (Sign < 0 && home.shadow)
      home.shadow->clocks.hand_on(warp.agent, home.flag(request.address[lane]));
    count_bytes(home, in, warp.thread(lane), request.address[lane], request.host[lane],
                Sign * static_cast<s64>(bytes[lane]));
  }
}

// Lands the copies that one mbarrier counts, if its phase lacks nothing else.
void settle(Block& block, u32 address) {
  u64 waiting = 0;
  for (const AsyncArrival& each : block.async_arrivals)
    if (each.address == address) waiting += static_cast<u64>(count_lanes(each.mask));
  const s64 coming = bytes_under_way(block, address);
  u8* host = block.shared + address;
  const Word word(host);
  if (!(waiting || coming) || !word.valid() || waiting < word.pending() || word.bytes() != coming)
    return;
  for (const AsyncArrival& each : block.async_arrivals) {
    if (each.address != address) continue;
    const u32 clock = block.shadow ? each.seen[each.warp->agent] : 0;
    land_copies(*each.warp, each.last_copy, each.mask, clock,
                block.shadow ? block.shadow->landing(address) : Shadow::kNoLanding);
    if (block.shadow) block.shadow->clocks.publish(block.flag(address), each.seen);
  }
  std::erase_if(block.async_arrivals,
                [&](const AsyncArrival& each) { return each.address == address; });
  if (coming) land_bulk_loads(block, address);
  settled(block, address, word.parity(), word.expected(), 0, 0).store(host);
}

// A try_wait may give up early. With checks, in one of the two orders of warps, it does so once for
// each phase, so that code that does not repeat it goes on too early.
bool gives_up(const Instruction& in, Warp& warp, u64 address, bool asked) {
  const Launch& launch = *warp.block->launch;
  return in.mbarrier.may_give_up && launch.checks && launch.last_warp_first &&
         warp.refused.insert(address << 1 | asked).second;
}

// `Parity`: the operand is the parity of the phase; otherwise it is the state that an arrival in
// the phase returned.
template <bool Parity>
void test(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, false, true, request);
  u32 over = 0;
  PTX_FOR_EACH_LANE (lane, request.mask) {
    bool asked;
    if constexpr (Parity)
      asked = at<const u32>(registers, in.mbarrier.operand)[lane] & 1;
    else
      asked = at<const u64>(registers, in.mbarrier.operand)[lane] >> 61 & 1;
    if (gives_up(in, warp, request.address[lane], asked)) continue;
    const bool copies = !block.async_arrivals.empty() || !block.bulk_loads.empty();
    if (copies && Word(request.host[lane]).parity() == asked)
      settle(block, static_cast<u32>(request.address[lane]));
    const Word word(request.host[lane]);
    if (!word.valid())
      misuse(block, in, warp.thread(lane), request.address[lane],
             "no mbarrier was initialised here");
    if (word.parity() == asked) continue;
    over |= 1u << lane;
    if (block.tensor && block.shadow)
      for (Block* other : block.cluster->blocks)
        other->tensor->waited({block.flag(request.address[lane]), asked});
    if (in.mbarrier.may_give_up) warp.refused.erase(request.address[lane] << 1 | asked);
  }
  set_predicate(registers, in.mbarrier.result, mask, over);
  block.polled = (request.mask & ~over) != 0;
  if (block.recorder && request.mask) {
    const u64 address = request.address[first_lane(request.mask)];
    // Without checks the lanes of a warp that test together go on together; the lanes that went on
    // explain why others cannot.
    if (over && (!block.polled || block.launch->checks))
      record_event(block, in, warp, RecordedEvent::pass, address, over, 0);
    if (block.polled)
      block.recorder->poll(warp.index, block.pc_of(in), static_cast<u32>(address), warp.now);
  }
  if (block.polled)
    warp.asked = static_cast<u32>(request.address[first_lane(request.mask & ~over)]);
  if (!block.shadow || !over || !(in.flags & kRelease)) return;
  Clocks& clocks = block.shadow->clocks;
  clocks.order_lanes(warp.agent);
  PTX_FOR_EACH_LANE (lane, over)
    block.shadow->acquire(warp.agent, block.flag(request.address[lane]));
  // One mbarrier at a time.
  for (u32 left = over; left;) {
    const u64 address = request.address[first_lane(left)];
    u32 lanes = 0;
    PTX_FOR_EACH_LANE (lane, left) lanes |= (request.address[lane] == address ? 1u : 0u) << lane;
    block.shadow->waited(warp, lanes, static_cast<u32>(address));
    left &= ~lanes;
  }
}

void pending_count(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u32 out[kLanes];
  const u64* state = at<const u64>(registers, in.elementwise.source[0]);
  PTX_LANES {
    out[lane] = static_cast<u32>(state[lane] & Word::kMost);
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

// `Counted`: .noinc, the arrival is one of those that the phase expects anyway; otherwise the phase
// expects one more.
template <bool Counted>
void arrive_after_copies(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Block& block = *warp.block;
  Request request;
  resolve<Space::shared>(registers, in, mask, warp, 8, true, false, request);
  see(in, warp, request, true);
  AsyncArrival arrival{.address = 0, .mask = 0, .warp = &warp, .last_copy = warp.issued};
  if (block.shadow) {
    Clocks& clocks = block.shadow->clocks;
    arrival.seen = clocks.seen(warp.agent);
    clocks.fence(warp.agent);
  }
  PTX_FOR_EACH_LANE (lane, request.mask) {
    const Word word(request.host[lane]);
    if (!word.valid()) {
      misuse(block, in, warp.thread(lane), request.address[lane],
             "no mbarrier was initialised here");
      continue;
    }
    if (!Counted) {
      if (word.pending() == Word::kMost)
        misuse(block, in, warp.thread(lane), request.address[lane], "more than 1,048,575 arrivals");
      Word(word.parity(), word.expected(), (word.pending() + 1) & Word::kMost, word.bytes())
          .store(request.host[lane]);
    }
    const u32 address = static_cast<u32>(request.address[lane]);
    record_event(block, in, warp, RecordedEvent::arrive_late, address, 1, 0);
    if (arrival.mask && arrival.address != address) {
      block.async_arrivals.push_back(arrival);
      arrival.mask = 0;
    }
    arrival.address = address, arrival.mask |= 1u << lane;
  }
  if (arrival.mask) block.async_arrivals.push_back(arrival);
}

}  // namespace

void record_event(Block& home, const Instruction& in, const Warp& warp, RecordedEvent::Kind kind,
                  u64 mbarrier, u64 count, u64 bytes, u32 to) {
  if (!home.recorder) return;
  const u32 offset = static_cast<u32>(mbarrier & kOffsetMask);
  home.recorder->event(
      {.warp = warp.block == &home ? warp.index : -1,
       .pc = home.pc_of(in),
       .kind = kind,
       .at = offset,
       .phase = home.recorder->phase(offset) - (kind == RecordedEvent::pass ? 1 : 0),
       .count = static_cast<u32>(count),
       .bytes = static_cast<u32>(bytes),
       .to = to,
       .tick = warp.now});
}

void complete_bytes(Block& block, const Instruction& in, s32 thread, u32 address, u64 bytes) {
  count_bytes(block, in, thread, address, block.shared + address, -static_cast<s64>(bytes));
}

void arrive_committed(Block& block, const Instruction& in, Warp& warp, s32 thread, u32 address) {
  const Word word(block.shared + address);
  if (!word.valid()) return misuse(block, in, thread, address, "no mbarrier was initialised here");
  if (!word.pending())
    return misuse(block, in, thread, address, "more arrivals than the phase waits for");
  record_event(block, in, warp, RecordedEvent::arrive_committed, address, 1, 0);
  settled(block, address, word.parity(), word.expected(), word.pending() - 1, word.bytes())
      .store(block.shared + address);
}

void add_mbarriers(Table& table) {
  const auto add = [&](const char* name, Handler run, const char* destinations, const char* sources,
                       Kind kind = Kind::timed) {
    table.push_back({name, run, kind, Class::sync, destinations, sources});
  };
  add("mbarrier.init.shared.b64", &initialise, "", "address,b32");
  add("mbarrier.inval.shared.b64", &invalidate, "", "address");
  add("mbarrier.expect_tx.shared.b64", &count_transaction<1>, "", "address,b32");
  add("mbarrier.complete_tx.shared.b64", &count_transaction<-1>, "", "address,b32");
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
