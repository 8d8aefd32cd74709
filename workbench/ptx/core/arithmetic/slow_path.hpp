// Divisions and roots whose rare operands need a subroutine of the compiler: counts the warps that
// need it.
//
// The rules are the tests that the machine code makes before it calls one (ptxas 13.0, the same for
// sm_75 to sm_120). Division of f32 is an exception: its test is FCHK, of which no description is
// published. The rule here is the requirement of the inline iteration: operands, quotient and
// remainder in the range of normal numbers.
#pragma once
#include "arithmetic/rounding.hpp"

namespace workbench::ptx {

inline u32 upper_half(f64 x) { return static_cast<u32>(bits_as<u64>(x) >> 32); }

constexpr auto kSlowDivide32 = [](f32 a, f32 b) {
  const s32 above = static_cast<s32>(bits_as<u32>(a) >> 23 & 255),
            below = static_cast<s32>(bits_as<u32>(b) >> 23 & 255);
  const s32 quotient = above - below + 127;
  return (above < 25) | (above == 255) | (below == 0) | (below > 252) | (quotient < 2) |
         (quotient > 253);
};
constexpr auto kSlowReciprocal32 = [](f32 a) {
  return ((bits_as<u32>(a) + 0x1800000u) & 0x7f800000u) <= 0x1ffffffu;
};
constexpr auto kSlowRoot32 = [](f32 a) { return bits_as<u32>(a) - 0xd000000u > 0x727fffffu; };
constexpr auto kSlowDivide64 = [](f64 a, f64 b) {
  const u32 above = upper_half(a) & 0x7fffffffu, below = upper_half(b) & 0x7fffffffu,
            inverse = upper_half(1.0 / b) & 0x7fffffffu;
  return (above < 0x3600000u) | (below >= 0x7f800000u) | (inverse <= 0x100000u) |
         (inverse > 0x7f800000u);
};
constexpr auto kSlowReciprocal64 = [](f64 a) {
  return ((upper_half(a) + 0x300402u) & 0x7fffffffu) < 0x400402u;
};
constexpr auto kSlowRoot64 = [](f64 a) { return upper_half(a) - 0x3500000u >= 0x7ca00000u; };
constexpr auto kSlowDivideInteger = [](u64 a, u64 b) { return ((a | b) >> 32) != 0; };

template <class Rare, class... A, std::size_t... I>
inline u32 rare_lanes(u8* registers, const Instruction& in, std::type_identity<std::tuple<A...>>,
                      std::index_sequence<I...>) {
  const std::tuple<const A*...> sources{at<const A>(registers, in.elementwise.source[I])...};
  alignas(64) u8 flags[kLanes];
  PTX_LANES {
    flags[lane] = Rare{}(std::get<I>(sources)[lane]...) ? 1 : 0;
  }
  return pack_mask(flags);
}

// With statistics, counts the warps in which a lane needs the slow path, and then runs the handler.
template <class Rare, Handler Run>
void with_slow_path(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Block& block = *warp.block;
  if (block.counts) {
    using S = Signature<Rare>;
    const u32 rare = rare_lanes<Rare>(registers, in, std::type_identity<typename S::Arguments>{},
                                      std::make_index_sequence<S::count>{});
    block.counts[block.pc_of(in)].slow_paths += (rare & mask) != 0;
  }
  Run(registers, in, mask, warp);
}

template <class Rare, Handler Run>
Handlers counting_slow_paths() {
  return {Run, &with_slow_path<Rare, Run>};
}

template <class F, class Rare>
TableEntry op_with_slow_path(std::string name, Class group, F function, Rare) {
  TableEntry entry = op(std::move(name), group, function);
  entry.run = counting_slow_paths<Rare, &elementwise<1, F>>();
  return entry;
}

// The same for add_directed.
template <class F, class Rare>
void add_directed_with_slow_path(Table& table, const std::string& base, const std::string& suffix,
                                 Class group, F function, Rare) {
  add_roundings(table, op("", group, function), base, suffix,
                counting_slow_paths<Rare, &directed<FE_TOWARDZERO, F>>(),
                counting_slow_paths<Rare, &directed<FE_DOWNWARD, F>>(),
                counting_slow_paths<Rare, &directed<FE_UPWARD, F>>());
}

}  // namespace workbench::ptx
