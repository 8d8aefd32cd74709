// f32 registers as codes: results at once, other numbers by their mantissa and exponent.
#include "exact/lanes.hpp"

#include <cmath>

namespace workbench::ptx::exact {
namespace {

// Whether every lane is a result or zero, without a sign.
bool all_results(const u32* bits) {
  u32 other = 0;
  PTX_LANES {
    const u32 x = bits[lane];
    other |= (x & 0xffff0000u) == kMark || x == 0 ? 0u : 1u;
  }
  return other == 0;
}

// Whether all lanes are the same number, as a constant is.
bool all_same(const u32* bits) {
  u32 other = 0;
  PTX_LANES {
    other |= bits[lane] ^ bits[0];
  }
  return other == 0;
}

// The code of a constant, which a launch reads again and again.
u16 code_of_constant(u32 bits) {
  struct Known {
    u32 bits;
    u16 code;
  };
  static thread_local Known known[64] = {};  // zero is its own code
  Known& one = known[(bits * 0x9e3779b9u) >> 26];
  if (one.bits != bits) one = {bits, code_of(bits)};
  return one.code;
}

// Numbers from 2^-31 up to 2^30, of which the exponent's upper bits are among four.
constexpr u32 kLeast = 96u << 23, kMost = 0x4e800000u;

// The numbers in a register. Codes of those that `rare` has are to be found one by one: of other
// sizes, those of bf16, and constants that may stand for another number.
void read_numbers(const u32* bits, u16* codes, u16* rare) {
  alignas(64) u16 low[kLanes], upper[kLanes], power[kLanes];
  PTX_LANES {
    low[lane] = static_cast<u16>(bits[lane]);
    upper[lane] = static_cast<u16>(bits[lane] >> 16);
  }
  alignas(64) u32 powers[kLanes];
  PTX_LANES {
    powers[lane] = 1u << (bits[lane] >> 23 & 15);
  }
  PTX_LANES {
    power[lane] = static_cast<u16>(powers[lane]);
  }
  const u16* unit = tables->unit;
  const u16 unit0 = unit[0], unit1 = unit[1], unit2 = unit[2], unit3 = unit[3], unit4 = unit[4];
  PTX_LANES {  // the mantissa's parts, times 2^16 as often as the exponent says
    const u16 at = upper[lane] >> 11 & 15, high = static_cast<u16>((upper[lane] & 0x7f) | 0x80);
    u16 of_low = at == 6 ? unit0 : unit1, of_high = at == 6 ? unit1 : unit2;
    of_low = at == 8 ? unit2 : of_low, of_high = at == 8 ? unit3 : of_high;
    of_low = at == 9 ? unit3 : of_low, of_high = at == 9 ? unit4 : of_high;
    const u16 whole = sum_of(product_of(low[lane], of_low), product_of(high, of_high));
    codes[lane] = product_of(power[lane], whole);
  }
  alignas(64) u32 flags[kLanes];
  PTX_LANES {
    const u32 x = bits[lane] & 0x7fffffffu;
    const f32 value = bits_as<f32>(x);
    const u32 marked = (x & kMarked) == kMark ? 1 : 0, zero = x ? 0 : 1;
    const u32 many = x & 0x7ff ? 1 : 0, whole = std::rint(value) == value ? 1 : 0;
    const u32 odd = (x & 0xffff) == 0 ? 1u : x < kLeast ? 1u : x >= kMost ? 1u : 0u;
    const u32 rarely = (odd | (many & may_be_meant(value))) & ~(marked | zero);
    flags[lane] = rarely | (many & ~whole) << 1 | marked << 2 | zero << 3;
  }
  // Numbers of many digits keep their sign.
  alignas(64) u16 below[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) below[lane] = tables->below_zero[codes[lane]];
  PTX_LANES {
    const u32 x = bits[lane], flag = flags[lane];
    rare[lane] = flag & 1;
    u16 found = (flag >> 1 & below[lane]) ? negative_of(codes[lane]) : codes[lane];
    found = flag & 4 ? static_cast<u16>(x) : found;
    found = flag & 8 ? u16{0} : found;
    codes[lane] = x >> 31 ? negative_of(found) : found;
  }
}

}  // namespace

void Single::read(const u32* bits, Codes& codes) {
  if (all_results(bits)) {
    PTX_LANES {
      codes.at[lane] = static_cast<u16>(bits[lane]);
    }
    codes.special = false;
    return;
  }
  if (all_same(bits)) {
    const u16 code = code_of_constant(bits[0]);
    PTX_LANES {
      codes.at[lane] = code;
    }
    codes.special = is_special(code);
    return;
  }
  alignas(64) u16 rare[kLanes];
  read_numbers(bits, codes.at, rare);
  u16 any = 0;
  PTX_LANES {
    any |= rare[lane];
  }
  codes.special = false;
  if (!any) return;
  for (int lane = 0; lane < kLanes; ++lane)
    if (rare[lane])
      codes.at[lane] =
          bits[lane] & 0xffff ? code_of(bits[lane]) : tables->of_bfloat[bits[lane] >> 16];
  codes.special = any_special(codes.at);
}

void Single::write(const Codes& codes, u32* bits) {
  PTX_LANES {
    bits[lane] = bits_of(codes.at[lane]);
  }
  if (codes.special)
    for (int lane = 0; lane < kLanes; ++lane) bits[lane] = special_bits_of(codes.at[lane]);
}

}  // namespace workbench::ptx::exact
