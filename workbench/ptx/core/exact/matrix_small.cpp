// mma of elements with factors of 8, 6 and 4 bits, whose types may differ, and with block scales.
#include <map>

#include "exact/fragment.hpp"
#include "exact/handlers.hpp"

namespace workbench::ptx::exact {
namespace {

constexpr u32 kBytes = 16;  // of a row of a register
constexpr u32 kDepth = 32;  // K of which products are summed at a time

using ByteCodes = const u16*;  // by byte

// Of a byte in whose middle a number of four bits lies.
struct MiddleE2M1 {
  static f32 decode(u8 byte) { return E2M1::decode(byte >> 2); }
};

// The codes of the rows of a register, `pitch` apart.
void read_bytes(const u8* from, ByteCodes codes, u16* to, u32 pitch) {
  for (u32 row = 0; row < kRows; ++row)
    for (u32 i = 0; i < kBytes; ++i) to[pitch * row + i] = codes[from[kBytes * row + i]];
}
// The same for two numbers of four bits in each byte; `codes` are those of MiddleE2M1.
void read_nibbles(const u8* from, ByteCodes codes, u16* to, u32 pitch) {
  for (u32 row = 0; row < kRows; ++row)
    for (u32 i = 0; i < kBytes; ++i) {
      const u32 byte = from[kBytes * row + i];
      to[pitch * row + 2 * i] = codes[(byte & 15) << 2];
      to[pitch * row + 2 * i + 1] = codes[byte >> 4 << 2];
    }
}

// D[16][8] = A * B + C in steps of sixteen K.
template <u32 Steps, class Sum>
[[gnu::noinline]] void multiply_bytes(ByteCodes of_a, ByteCodes of_b, u8* registers,
                                      const Instruction& instruction, u32 mask) {
  constexpr u32 depth = kBytes * Steps;
  const operands::Product& in = instruction.product;
  alignas(64) u16 a[2 * kRows][depth], b[kColumns][depth], sums[2 * kRows][kColumns];
  for (u32 step = 0; step < Steps; ++step) {
    read_bytes(registers + in.b[step], of_b, b[0] + kBytes * step, depth);
    for (u32 half = 0; half < 2; ++half)
      read_bytes(registers + in.a[half + 2 * step], of_a, a[kRows * half] + kBytes * step, depth);
  }
  for (u32 half = 0; half < 2; ++half) read_sums<Sum>(registers, in.c, half, sums + kRows * half);
  add_products<depth>(a, b, sums);
  for (u32 half = 0; half < 2; ++half)
    write_sums<Sum>(registers, in.d, half, mask, sums + kRows * half);
}

template <class A, class B, u32 Steps, class Sum>
void bytes(u8* registers, const Instruction& in, u32 mask, Warp&) {
  multiply_bytes<Steps, Sum>(EightBits<A>::codes(), EightBits<B>::codes(), registers, in, mask);
}

// ---- block scales ----

// Multiplies each of `Chunks` runs along K by its scale. `parts`: a row's codes, by parts of K.
template <u32 Parts, u32 Chunks>
void scale_row(u16* const (&parts)[Parts], ByteCodes of_scale, u32 word) {
  constexpr u32 run = kDepth * Parts / Chunks;
  for (u32 chunk = 0; chunk < Chunks; ++chunk) {
    const u16 scale = of_scale[word >> 8 * chunk & 0xff];
    for (u32 k = chunk * run; k < (chunk + 1) * run; ++k) {
      u16& code = parts[k / kDepth][k % kDepth];
      code = product(code, scale);
    }
  }
}

// The same with scales. Factors of two parts of K have four bits.
template <u32 Parts, u32 Chunks>
[[gnu::noinline]] void multiply_scaled(ByteCodes of_a, ByteCodes of_b, ByteCodes of_scale,
                                       u8* registers, const Instruction& instruction, u32 mask) {
  const operands::ScaledProduct& in = instruction.scaled_product;
  alignas(64) u16 a[Parts][2 * kRows][kDepth], b[Parts][kColumns][kDepth];
  alignas(64) u16 sums[2 * kRows][kColumns];
  for (u32 i = 0; i < 2; ++i) {  // a half of K
    if constexpr (Parts == 2) {
      read_nibbles(registers + in.b[i], of_b, b[i][0], kDepth);
      for (u32 half = 0; half < 2; ++half)
        read_nibbles(registers + in.a[half + 2 * i], of_a, a[i][kRows * half], kDepth);
    } else {
      read_bytes(registers + in.b[i], of_b, b[0][0] + kBytes * i, kDepth);
      for (u32 half = 0; half < 2; ++half)
        read_bytes(registers + in.a[half + 2 * i], of_a, a[0][kRows * half] + kBytes * i, kDepth);
    }
  }
  const u64 selectors = at<const u64>(registers, in.selectors)[first_lane(mask)];
  const auto selector = [&](u32 i) { return static_cast<u32>(selectors >> 16 * i & 0xffff); };
  const u32 byte_a = selector(0) & (4 - Chunks), thread_a = selector(1) & 1;
  const u32 byte_b = selector(2) & (4 - Chunks), thread_b = selector(3) & 3;
  const auto scaled = [&](auto& factors, u32 row, Slot scales, u32 lane, u32 byte) {
    u16* parts[Parts];
    for (u32 part = 0; part < Parts; ++part) parts[part] = factors[part][row];
    scale_row<Parts, Chunks>(parts, of_scale, at<const u32>(registers, scales)[lane] >> 8 * byte);
  };
  for (u32 row = 0; row < 2 * kRows; ++row)
    scaled(a, row, in.scale_a, 4 * (row % kRows) + 2 * thread_a + row / kRows, byte_a);
  for (u32 n = 0; n < kColumns; ++n) scaled(b, n, in.scale_b, 4 * n + thread_b, byte_b);
  for (u32 half = 0; half < 2; ++half)
    read_sums<Single>(registers, in.c, half, sums + kRows * half);
  for (u32 part = 0; part < Parts; ++part) add_products<kDepth>(a[part], b[part], sums);
  for (u32 half = 0; half < 2; ++half)
    write_sums<Single>(registers, in.d, half, mask, sums + kRows * half);
}

template <class A, class B, u32 Parts, u32 Chunks, class Scale>
void scaled(u8* registers, const Instruction& in, u32 mask, Warp&) {
  multiply_scaled<Parts, Chunks>(EightBits<A>::codes(), EightBits<B>::codes(),
                                 EightBits<Scale>::codes(), registers, in, mask);
}

// ---- by name ----

using Forms = std::map<std::string, Handler>;

template <class A, class B>
void add_pair(Forms& forms, const std::string& types) {
  forms["m16n8k32.f32." + types + ".f32"] = &bytes<A, B, 2, Single>;
  forms["m16n8k32.f16." + types + ".f16"] = &bytes<A, B, 2, HalfCode>;
  forms["m16n8k16.f32." + types + ".f32"] = &bytes<A, B, 1, Single>;
  forms["m16n8k16.f16." + types + ".f16"] = &bytes<A, B, 1, HalfCode>;
  forms["m16n8k32.block_scale.1X.f32." + types + ".f32.ue8m0"] = &scaled<A, B, 1, 1, PowerOfTwo>;
}

template <class A>
void add_row(Forms& forms, const std::string& type) {
  add_pair<A, E4M3>(forms, type + ".e4m3");
  add_pair<A, E5M2>(forms, type + ".e5m2");
  add_pair<A, E3M2>(forms, type + ".e3m2");
  add_pair<A, E2M3>(forms, type + ".e2m3");
  add_pair<A, MiddleE2M1>(forms, type + ".e2m1");
}

Forms all_forms() {
  using Four = MiddleE2M1;
  Forms forms;
  add_row<E4M3>(forms, "e4m3");
  add_row<E5M2>(forms, "e5m2");
  add_row<E3M2>(forms, "e3m2");
  add_row<E2M3>(forms, "e2m3");
  add_row<Four>(forms, "e2m1");
  const std::string scaled_four = "m16n8k64.block_scale.", types = "X.f32.e2m1.e2m1.f32.";
  forms[scaled_four + "2" + types + "ue8m0"] = &scaled<Four, Four, 2, 2, PowerOfTwo>;
  forms[scaled_four + "4" + types + "ue8m0"] = &scaled<Four, Four, 2, 4, PowerOfTwo>;
  forms[scaled_four + "4" + types + "ue4m3"] = &scaled<Four, Four, 2, 4, UE4M3>;
  return forms;
}

}  // namespace

std::optional<Handlers> small_product(const std::string& form) {
  static const Forms forms = all_forms();
  const auto found = forms.find(form);
  return found == forms.end() ? std::nullopt : std::optional(Handlers(found->second));
}

}  // namespace workbench::ptx::exact
