// Operations over the lanes of a warp: shfl, vote, match, redux. The scheduler has already
// collected the lanes.
#include <algorithm>
#include <bit>

#include "arithmetic/elementwise.hpp"
#include "arithmetic/numeric.hpp"
#include "exact/handlers.hpp"
#include "exact/lanes.hpp"

namespace workbench::ptx {
namespace {

enum class Shuffle { up, down, butterfly, index };

// Lanes whose source takes no part; below, lanes whose source is past the highest, or before the
// lowest, lane that takes part.
u32 sources_absent(const u32* from, u32 mask) {
  u32 absent = 0;
  PTX_FOR_EACH_LANE (lane, mask) absent |= (~mask >> from[lane] & 1) << lane;
  return absent;
}
u32 ends_at(const u32* from, u32 mask) {
  u32 past = 0;
  PTX_FOR_EACH_LANE (lane, mask) past |= (mask >> from[lane] == 0 ? 1u : 0u) << lane;
  return past;
}
u32 begins_at(const u32* from, u32 mask) {
  u32 past = 0;
  PTX_FOR_EACH_LANE (lane, mask) past |= (mask << (31 - from[lane]) == 0 ? 1u : 0u) << lane;
  return past;
}

// Every lane waits for the others of its mask and receives their values. With checks, this shows
// that their earlier reads have finished (Clocks::exchange).
template <Handler Run>
void observed(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Run(registers, in, mask, warp);
  if (warp.block->shadow)
    warp.block->shadow->clocks.exchange(warp.agent, mask, warp.all & ~warp.exited);
}
template <Handler Run>
Handlers exchange() {
  return {Run, &observed<Run>};
}

// shfl.up and shfl.down: the last lanes of a group read past its end, as the last lanes of a warp
// do. A sum over a group whose size is a power of two does not use these values. With another size
// it does, unless the kernel prevents it; this is found by a second launch, in which such lanes get
// a different value (Problem::undefined_lane, and warp_orders.py). Always reported: a group in
// which no lane receives another lane's value, a gap in the group, and any absent source in the
// other modes.
template <Shuffle Mode>
void shuffle(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u32* value = at<const u32>(registers, in.exchange.value);
  const u32* operand = at<const u32>(registers, in.exchange.lane);
  const u32* control = at<const u32>(registers, in.exchange.control);
  alignas(64) u32 out[kLanes], from[kLanes];
  alignas(64) u8 inside[kLanes];
  PTX_LANES {
    const s32 clamp = control[lane] & 31, segment = control[lane] >> 8 & 31, b = operand[lane] & 31;
    const s32 highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    s32 source = 0;
    bool valid = false;
    if constexpr (Mode == Shuffle::up)
      source = lane - b, valid = source >= highest;
    else if constexpr (Mode == Shuffle::down)
      source = lane + b, valid = source <= highest;
    else if constexpr (Mode == Shuffle::butterfly)
      source = lane ^ b, valid = source <= highest;
    else
      source = lowest | (b & ~segment), valid = source <= highest;
    from[lane] = static_cast<u32>(valid ? source : lane) & 31;
    inside[lane] = valid;
  }
  for (int lane = 0; lane < kLanes; ++lane) out[lane] = value[from[lane]];
  if (const u32 absent = mask == kAllLanes ? 0 : sources_absent(from, mask); absent) {
    // The value of such a lane is undefined, so it gets one that shows.
    PTX_FOR_EACH_LANE (lane, absent) out[lane] = warp.block->launch->undefined;
    const u32 past_end = Mode == Shuffle::down ? ends_at(from, mask)
                         : Mode == Shuffle::up ? begins_at(from, mask)
                                               : 0;
    const bool some_inside = past_end != mask,
               of_power = std::has_single_bit(static_cast<u32>(count_lanes(mask)));
    PTX_FOR_EACH_LANE (lane, warp.block->launch->checks ? absent : 0) {
      const bool excused = some_inside && past_end >> lane & 1;
      if (excused && of_power) continue;
      warp.block->note({.problem = excused ? Problem::undefined_lane : Problem::absent_lane,
                        .pc = warp.block->pc_of(in),
                        .block = warp.block->index,
                        .thread = warp.thread(lane),
                        .other_thread = warp.thread(from[lane])});
    }
  }
  write_lanes(registers, in.exchange.result, mask, out);
  if (in.exchange.predicate != kNoSlot)
    set_predicate(registers, in.exchange.predicate, mask, pack_mask(inside));
}

inline u32 operand_predicate(u8* registers, const Instruction& in) {
  return *at<u32>(registers, in.exchange.value) ^ in.negated;
}

void ballot(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u32 out[kLanes];
  const u32 votes = operand_predicate(registers, in) & mask;
  PTX_LANES {
    out[lane] = votes;
  }
  write_lanes(registers, in.exchange.result, mask, out);
}

template <class F>
void vote(u8* registers, const Instruction& in, u32 mask, Warp&) {
  set_predicate(registers, in.exchange.result, mask,
                F{}(operand_predicate(registers, in) & mask, mask) ? ~0u : 0u);
}

template <class T>
void match_any(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* value = at<const T>(registers, in.exchange.value);
  alignas(64) u32 out[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, mask)
    PTX_FOR_EACH_LANE (other, mask) out[lane] |= (value[other] == value[lane] ? 1u : 0u) << other;
  write_lanes(registers, in.exchange.result, mask, out);
}

template <class T>
void match_all(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* value = at<const T>(registers, in.exchange.value);
  bool same = true;
  PTX_FOR_EACH_LANE (lane, mask) same &= value[lane] == value[first_lane(mask)];
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    out[lane] = same ? mask : 0;
  }
  write_lanes(registers, in.exchange.result, mask, out);
  if (in.exchange.predicate != kNoSlot)
    set_predicate(registers, in.exchange.predicate, mask, same ? ~0u : 0u);
}

template <class T, class F>
void reduce(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* value = at<const T>(registers, in.exchange.value);
  T result = value[first_lane(mask)];
  PTX_FOR_EACH_LANE (lane, mask & (mask - 1)) result = F{}(result, value[lane]);
  alignas(64) T out[kLanes];
  PTX_LANES {
    out[lane] = result;
  }
  write_lanes(registers, in.exchange.result, mask, out);
}

void active_mask(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    out[lane] = mask;
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

// elect: the lowest lane of the member mask.
void elect(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    out[lane] = static_cast<u32>(first_lane(mask));
  }
  if (in.exchange.result != kNoSlot) write_lanes(registers, in.exchange.result, mask, out);
  if (in.exchange.predicate != kNoSlot)
    set_predicate(registers, in.exchange.predicate, mask, mask & -mask);
}

// Of all collectives only this one orders the lanes' accesses to memory (CUDA C++ Programming
// Guide, __syncwarp: "guarantees memory ordering among participating threads"; for shuffles, votes
// and the rest it says that they do not).
void sync_lanes(u8*, const Instruction&, u32, Warp& warp) {
  if (warp.block->shadow) warp.block->shadow->meet_lanes(warp.agent);
}

// F: (value, value) -> value; also applied to a single lane, so that its treatment of NaN holds.
template <bool Magnitudes, class F>
void reduce_floats(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const f32* values = at<f32>(registers, in.exchange.value);
  const auto value = [&](u32 lane) {
    return Magnitudes ? bits_as<f32>(bits_as<u32>(values[lane]) & 0x7fffffffu) : values[lane];
  };
  const u32 first = static_cast<u32>(first_lane(mask));
  f32 result = F{}(value(first), value(first));
  PTX_FOR_EACH_LANE (lane, mask & (mask - 1)) result = F{}(result, value(lane));
  alignas(64) f32 out[kLanes];
  PTX_LANES {
    out[lane] = result;
  }
  write_lanes(registers, in.exchange.result, mask, out);
}

// The same for elements of a ring (exact/ring.hpp). What is undefined stays so.
template <bool Greatest, bool Magnitudes>
void reduce_elements(u8* registers, const Instruction& in, u32 mask, Warp&) {
  exact::Codes codes;
  exact::Single::read(at<const u32>(registers, in.exchange.value), codes);
  const auto value = [&](u32 lane) {
    return Magnitudes ? exact::tables->magnitude[codes.at[lane]] : codes.at[lane];
  };
  u16 result = value(first_lane(mask));
  PTX_FOR_EACH_LANE (lane, mask & (mask - 1)) {
    const u16 one = value(lane);
    if (one >= exact::kUndefined || result >= exact::kUndefined)
      result = exact::kUndefined;
    else
      result = Greatest ? exact::greater(result, one) : exact::lesser(result, one);
  }
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    out[lane] = exact::Single::write(result);
  }
  write_lanes(registers, in.exchange.result, mask, out);
}

template <class F>
void add_float_redux(Table& table, const std::string& operation, const std::string& nan, F) {
  const auto add = [&](const std::string& name, Handlers run) {
    table.push_back({name, run, Kind::collective, Class::sync, "b32", "b32,member"});
  };
  add("redux." + operation + nan + ".f32", exchange<&reduce_floats<false, F>>());
  add("redux." + operation + ".abs" + nan + ".f32", exchange<&reduce_floats<true, F>>());
}

template <class T, class F>
TableEntry redux(const char* name, F) {
  return {name, exchange<&reduce<T, F>>(), Kind::collective, Class::sync, "b32", "b32,member"};
}

}  // namespace

void add_collectives(Table& table) {
  auto add = [&](const char* name, Handlers run, const char* destinations, const char* sources) {
    table.push_back({name, run, Kind::collective, Class::sync, destinations, sources});
  };
  add("shfl.up", exchange<&shuffle<Shuffle::up>>(), "b32,pred", "b32,b32,b32,member");
  add("shfl.down", exchange<&shuffle<Shuffle::down>>(), "b32,pred", "b32,b32,b32,member");
  add("shfl.bfly", exchange<&shuffle<Shuffle::butterfly>>(), "b32,pred", "b32,b32,b32,member");
  add("shfl.idx", exchange<&shuffle<Shuffle::index>>(), "b32,pred", "b32,b32,b32,member");
  add("vote.ballot", exchange<&ballot>(), "b32", "pred,member");
  const auto all = [](u32 votes, u32 mask) { return votes == mask; };
  const auto any = [](u32 votes, u32) { return votes != 0; };
  const auto uniform = [](u32 votes, u32 mask) { return votes == 0 || votes == mask; };
  add("vote.all", exchange<&vote<decltype(all)>>(), "pred", "pred,member");
  add("vote.any", exchange<&vote<decltype(any)>>(), "pred", "pred,member");
  add("vote.uni", exchange<&vote<decltype(uniform)>>(), "pred", "pred,member");
  add("match.any.b32", exchange<&match_any<u32>>(), "b32", "b32,member");
  add("match.any.b64", exchange<&match_any<u64>>(), "b32", "b64,member");
  add("match.all.b32", exchange<&match_all<u32>>(), "b32,pred", "b32,member");
  add("match.all.b64", exchange<&match_all<u64>>(), "b32,pred", "b64,member");
  table.push_back(redux<u32>("redux.add.b32", [](u32 a, u32 b) { return a + b; }));
  table.push_back(redux<u32>("redux.and.b32", [](u32 a, u32 b) { return a & b; }));
  table.push_back(redux<u32>("redux.or.b32", [](u32 a, u32 b) { return a | b; }));
  table.push_back(redux<u32>("redux.xor.b32", [](u32 a, u32 b) { return a ^ b; }));
  table.push_back(redux<u32>("redux.min.u32", [](u32 a, u32 b) { return std::min(a, b); }));
  table.push_back(redux<u32>("redux.max.u32", [](u32 a, u32 b) { return std::max(a, b); }));
  table.push_back(redux<s32>("redux.min.s32", [](s32 a, s32 b) { return std::min(a, b); }));
  table.push_back(redux<s32>("redux.max.s32", [](s32 a, s32 b) { return std::max(a, b); }));
  add_float_redux(table, "min", "", [](f32 a, f32 b) { return minimum(a, b); });
  add_float_redux(table, "max", "", [](f32 a, f32 b) { return maximum(a, b); });
  add_float_redux(table, "min", ".NaN", [](f32 a, f32 b) { return minimum_nan(a, b); });
  add_float_redux(table, "max", ".NaN", [](f32 a, f32 b) { return maximum_nan(a, b); });
  add("bar.warp.sync", &sync_lanes, "", "member");
  add("elect.sync", &elect, "b32,pred", "member");
  table.push_back({"activemask", &active_mask, Kind::plain, Class::sync, "b32", ""});
}

std::optional<Handlers> exact::reduction(const Name& name) {
  if (name.type != "f32") return std::nullopt;
  const bool magnitudes = name.has("abs");
  if (name.has("max"))
    return magnitudes ? exchange<&reduce_elements<true, true>>()
                      : exchange<&reduce_elements<true, false>>();
  if (name.has("min"))
    return magnitudes ? exchange<&reduce_elements<false, true>>()
                      : exchange<&reduce_elements<false, false>>();
  return std::nullopt;
}

}  // namespace workbench::ptx
