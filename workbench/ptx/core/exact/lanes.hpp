// The 32 lanes of a register as codes: reading and writing each format.
#pragma once
#include "exact/ring.hpp"
#include "warp.hpp"

namespace workbench::ptx::exact {

// `special`: some lane may hold a symbol.
struct Codes {
  alignas(64) u16 at[kLanes];
  bool special;
};

inline bool any_special(const u16* codes) {
  u16 most = 0;
  PTX_LANES {
    most = std::max(most, codes[lane]);
  }
  return most >= kModulus;
}

struct Single {
  using Bits = u32;
  static void read(const u32* bits, Codes& codes);
  static void write(const Codes& codes, u32* bits);
  static u16 read(u32 bits) { return code_of(bits); }
  static u32 write(u16 code) { return special_bits_of(code); }
};

template <auto OfPattern, auto ToPattern>
struct Short {
  using Bits = u16;
  static u16 read(u16 bits) { return (tables->*OfPattern)[bits]; }
  static u16 write(u16 code) { return (tables->*ToPattern)[code]; }
  static void read(const u16* bits, Codes& codes) {
    const u16* table = tables->*OfPattern;
    for (int lane = 0; lane < kLanes; ++lane) codes.at[lane] = table[bits[lane]];
    codes.special = any_special(codes.at);
  }
  static void write(const Codes& codes, u16* bits) {
    const u16* table = tables->*ToPattern;
    for (int lane = 0; lane < kLanes; ++lane) bits[lane] = table[codes.at[lane]];
  }
};
using HalfCode = Short<&Tables::of_half, &Tables::to_half>;
using BfloatCode = Short<&Tables::of_bfloat, &Tables::to_bfloat>;

// An f64 is worth what it is as an f32, so that constants of both types agree. Results keep the
// bits of an f32 in their lower half.
struct Double {
  using Bits = u64;
  static constexpr u64 kMark64 = 0x7ff4a5a500000000ull;
  static u16 read(u64 bits) {
    const u64 sign = bits >> 63 << 63;
    if (((bits ^ sign) & 0xffffffff00000000ull) == kMark64) {
      const u16 code = code_of(static_cast<u32>(bits));
      return sign ? negative(code) : code;
    }
    return code_of(bits_as<u32>(static_cast<f32>(bits_as<f64>(bits))));
  }
  static u64 write(u16 code) { return code ? kMark64 | special_bits_of(code) : 0; }
  static void read(const u64* bits, Codes& codes) {
    for (int lane = 0; lane < kLanes; ++lane) codes.at[lane] = read(bits[lane]);
    codes.special = any_special(codes.at);
  }
  static void write(const Codes& codes, u64* bits) {
    for (int lane = 0; lane < kLanes; ++lane) bits[lane] = write(codes.at[lane]);
  }
};

// Writes results of T, `Pack` for each lane, to a register.
template <class T, int Pack>
inline void write_register(u8* registers, u32 slot, u32 mask, const typename T::Bits* out) {
  using Bits = typename T::Bits;
  using Lane = std::conditional_t<sizeof(Bits) * Pack == 8, u64,
                                  std::conditional_t<sizeof(Bits) * Pack == 4, u32, u16>>;
  write_lanes(registers, slot, mask, reinterpret_cast<const Lane*>(out));
}

}  // namespace workbench::ptx::exact
