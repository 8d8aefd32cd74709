// Short names of the machine types, and the number of lanes.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace workbench::ptx {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

constexpr int kLanes = 32;
constexpr u32 kAllLanes = 0xffffffffu;

constexpr u32 kTf32Bits = 0xffffe000u;  // the bits of an f32 that TF32 keeps

// A 16-bit floating point value in a register; arithmetic goes through f32 (see half.hpp).
struct Half {
  u16 bits;
};
struct Bfloat {
  u16 bits;
};

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline u32 first_lane(u32 mask) { return static_cast<u32>(__builtin_ctz(mask)); }
inline int count_lanes(u32 mask) { return __builtin_popcount(mask); }

// Calls function(number) for each set bit of a mask, the lowest first.
template <class F>
inline void for_each_bit(u32 mask, F function) {
  for (; mask; mask &= mask - 1) function(static_cast<u32>(__builtin_ctz(mask)));
}

}  // namespace workbench::ptx

// A loop over lanes that may run in parallel: lane i of a result depends on lane i of the sources
// only, even if a destination is also a source.
#define PTX_LANES _Pragma("GCC ivdep") for (int lane = 0; lane < kLanes; ++lane)
#define PTX_FOR_EACH_LANE(lane, mask)                                                             \
  for (u32 lane##_rest = (mask), lane = 0; lane##_rest && (lane = first_lane(lane##_rest), true); \
       lane##_rest &= lane##_rest - 1)
