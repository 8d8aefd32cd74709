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

// Whether arithmetic alone gives the code of a number: neither a symbol nor a constant that may
// stand for another number.
bool is_plain(u32 bits) {
  const u32 size = bits & 0x7fffffffu;
  const bool symbol = size >= 0x4e800000u && (size & kMarked) != kMark;
  return !symbol && !((size & 0x7ff) && may_be_meant(bits_as<f32>(size)));
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
  alignas(64) u8 rare[kLanes];
  u32 any = 0;
  PTX_LANES {
    rare[lane] = is_plain(bits[lane]) ? 0 : 1;
    any |= rare[lane];
  }
  alignas(64) u16 scale[kLanes], scale_of_high[kLanes], code[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const u32 exponent = bits[lane] >> 23 & 0xff;
    scale[lane] = tables->scale[exponent];
    scale_of_high[lane] = tables->scale_of_high[exponent];
  }
  PTX_LANES {
    const u32 x = bits[lane];
    const u32 hidden = (x & 0x7f800000u) ? 0x800000u : 0;
    const u32 mantissa = (x & 0x7fffffu) | hidden;
    code[lane] = sum_of(product_of(static_cast<u16>(mantissa), scale[lane]),
                        product_of(static_cast<u16>(mantissa >> 16), scale_of_high[lane]));
  }
  // Numbers of few digits are those of bf16; whole ones are exact; others keep their sign.
  alignas(64) u16 table[kLanes], pattern[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    table[lane] = tables->of_bfloat[bits[lane] >> 16 & 0x7fff];
    pattern[lane] = tables->to_half[code[lane]];
  }
  PTX_LANES {
    const u32 x = bits[lane];
    const f32 value = bits_as<f32>(x & 0x7fffffffu);
    const bool turned = (x & 0x7ff) && pattern[lane] >> 15 && std::rint(value) != value;
    u16 found = turned ? negative_of(code[lane]) : code[lane];
    found = x & 0xffff ? found : table[lane];
    found = (x & kMarked) == kMark ? static_cast<u16>(x) : found;
    codes.at[lane] = x >> 31 ? negative_of(found) : found;
  }
  codes.special = any;
  if (any)
    for (int lane = 0; lane < kLanes; ++lane)
      if (rare[lane]) codes.at[lane] = code_of(bits[lane]);
}

void Single::write(const Codes& codes, u32* bits) {
  PTX_LANES {
    bits[lane] = bits_of(codes.at[lane]);
  }
  if (codes.special)
    for (int lane = 0; lane < kLanes; ++lane) bits[lane] = special_bits_of(codes.at[lane]);
}

}  // namespace workbench::ptx::exact
