// mma of elements. A register of a fragment is eight rows of sixteen bytes along K (matrix.cpp of
// the plain machine).
#include <map>

#include "exact/handlers.hpp"
#include "exact/product.hpp"

namespace workbench::ptx::exact {
namespace {

constexpr u32 kRows = 8;  // of a register

// Factors: how many a row of a register has, and their codes.
template <class T>
struct Factors {  // of 16 bits
  static constexpr u32 kInRow = 8;
  static void read(const u8* from, u16* codes) {
    const u16* bits = reinterpret_cast<const u16*>(from);
    for (u32 i = 0; i < kRows * kInRow; ++i) codes[i] = T::read(bits[i]);
  }
};
template <>
struct Factors<Single> {
  static constexpr u32 kInRow = 4;
  static void read(const u8* from, u16* codes) {
    Codes read;
    Single::read(reinterpret_cast<const u32*>(from), read);
    std::memcpy(codes, read.at, sizeof read.at);
  }
};
template <class Format>
struct Factors<EightBits<Format>> {
  static constexpr u32 kInRow = 16;
  static void read(const u8* from, u16* codes) {
    for (u32 i = 0; i < kRows * kInRow; ++i) codes[i] = EightBits<Format>::read(from[i]);
  }
};

// One half of the sums: two registers of f32, of the even and the odd columns, or one of f16.
template <class Sum>
void read_sums(u8* registers, const u32* slots, u32 half, u16 (*sums)[kColumns]) {
  if constexpr (std::is_same_v<Sum, Single>) {
    Codes even, odd;
    Single::read(at<const u32>(registers, slots[2 * half]), even);
    Single::read(at<const u32>(registers, slots[2 * half + 1]), odd);
    u32* pairs = reinterpret_cast<u32*>(sums);
    PTX_LANES {
      pairs[lane] = u32{odd.at[lane]} << 16 | even.at[lane];
    }
  } else {
    const u16* bits = at<const u16>(registers, slots[half]);
    for (u32 i = 0; i < kRows * kColumns; ++i)
      sums[i / kColumns][i % kColumns] = Sum::read(bits[i]);
  }
}

template <class Sum>
void write_sums(u8* registers, const u32* slots, u32 half, u32 mask, const u16 (*sums)[kColumns]) {
  if constexpr (std::is_same_v<Sum, Single>) {
    const u32* pairs = reinterpret_cast<const u32*>(sums);
    Codes even, odd;
    PTX_LANES {
      even.at[lane] = static_cast<u16>(pairs[lane]);
      odd.at[lane] = static_cast<u16>(pairs[lane] >> 16);
    }
    for (u32 i = 0; i < 2; ++i) {
      Codes& codes = i ? odd : even;
      codes.special = any_special(codes.at);
      alignas(64) u32 out[kLanes];
      Single::write(codes, out);
      write_lanes(registers, slots[2 * half + i], mask, out);
    }
  } else {
    alignas(64) u16 out[kRows * kColumns];
    for (u32 i = 0; i < kRows * kColumns; ++i)
      out[i] = Sum::write(sums[i / kColumns][i % kColumns]);
    write_lanes(registers, slots[half], mask, reinterpret_cast<const u32*>(out));
  }
}

template <u32 Count>
bool has_special(const u16* codes) {
  u16 most = 0;
  for (u32 i = 0; i < Count; ++i) most = std::max(most, codes[i]);
  return is_special(most);
}

// D[16][8] = A * B + C in steps of sixteen bytes of K. Everything is read before anything is
// written, as registers may be the same.
template <class A, class B, u32 Steps, class D, class C>
void multiply_add(u8* registers, const Instruction& in, u32 mask, Warp&) {
  constexpr u32 in_row = Factors<A>::kInRow, depth = in_row * Steps;
  alignas(64) u16 a[2 * kRows][depth], b[kColumns][depth], sums[2 * kRows][kColumns];
  alignas(64) u16 tile[kRows * in_row];
  for (u32 step = 0; step < Steps; ++step) {
    Factors<B>::read(registers + in.product.b[step], tile);
    for (u32 n = 0; n < kColumns; ++n)
      std::memcpy(b[n] + in_row * step, tile + in_row * n, sizeof(u16) * in_row);
    for (u32 half = 0; half < 2; ++half) {
      Factors<A>::read(registers + in.product.a[half + 2 * step], tile);
      for (u32 row = 0; row < kRows; ++row)
        std::memcpy(a[kRows * half + row] + in_row * step, tile + in_row * row,
                    sizeof(u16) * in_row);
    }
  }
  for (u32 half = 0; half < 2; ++half)
    read_sums<C>(registers, in.product.c, half, sums + kRows * half);
  if (has_special<2 * kRows * depth>(a[0]) || has_special<kColumns * depth>(b[0]) ||
      has_special<2 * kRows * kColumns>(sums[0])) {
    for (u32 row = 0; row < 2 * kRows; ++row)
      for (u32 n = 0; n < kColumns; ++n)
        for (u32 k = 0; k < depth; ++k)
          sums[row][n] = sum(sums[row][n], product(a[row][k], b[n][k]));
  } else {
    multiply_rows<2 * kRows>(a, RightFactor<depth>(b), sums);
  }
  for (u32 half = 0; half < 2; ++half)
    write_sums<D>(registers, in.product.d, half, mask, sums + kRows * half);
}

}  // namespace

std::optional<Handlers> matrix_product(const std::string& name) {
  using F8 = EightBits<E4M3>;
  using G8 = EightBits<E5M2>;
  static const std::map<std::string, Handler> all = {
      {"m16n8k16.f32.f16.f16.f32", &multiply_add<HalfCode, HalfCode, 2, Single, Single>},
      {"m16n8k8.f32.f16.f16.f32", &multiply_add<HalfCode, HalfCode, 1, Single, Single>},
      {"m16n8k16.f32.bf16.bf16.f32", &multiply_add<BfloatCode, BfloatCode, 2, Single, Single>},
      {"m16n8k8.f32.bf16.bf16.f32", &multiply_add<BfloatCode, BfloatCode, 1, Single, Single>},
      {"m16n8k16.f16.f16.f16.f16", &multiply_add<HalfCode, HalfCode, 2, HalfCode, HalfCode>},
      {"m16n8k8.f16.f16.f16.f16", &multiply_add<HalfCode, HalfCode, 1, HalfCode, HalfCode>},
      {"m16n8k16.f32.f16.f16.f16", &multiply_add<HalfCode, HalfCode, 2, Single, HalfCode>},
      {"m16n8k16.f16.f16.f16.f32", &multiply_add<HalfCode, HalfCode, 2, HalfCode, Single>},
      {"m16n8k8.f32.tf32.tf32.f32", &multiply_add<Single, Single, 2, Single, Single>},
      {"m16n8k4.f32.tf32.tf32.f32", &multiply_add<Single, Single, 1, Single, Single>},
      {"m16n8k32.f32.e4m3.e4m3.f32", &multiply_add<F8, F8, 2, Single, Single>},
      {"m16n8k32.f32.e5m2.e5m2.f32", &multiply_add<G8, G8, 2, Single, Single>},
      {"m16n8k32.f32.e4m3.e5m2.f32", &multiply_add<F8, G8, 2, Single, Single>},
      {"m16n8k32.f32.e5m2.e4m3.f32", &multiply_add<G8, F8, 2, Single, Single>}};
  if (!name.starts_with("mma.")) return std::nullopt;
  const auto found = all.find(name.substr(4));
  return found == all.end() ? std::nullopt : std::optional(Handlers(found->second));
}

}  // namespace workbench::ptx::exact
