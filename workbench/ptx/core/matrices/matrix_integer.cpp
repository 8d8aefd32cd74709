// mma of 4-bit and 1-bit integers with 32-bit sums, and the smallest shapes of 8-bit integers
// (matrix_bytes.cpp has the larger ones).
//
// A register holds a tile of 8 rows with 16 bytes each: lane 4r + c has bytes 4c to 4c + 3 of row
// r. For B the rows are n. Sums wrap, or with .satfinite saturate to s32.
#include <algorithm>
#include <limits>

#include "warp.hpp"

namespace workbench::ptx {
namespace {

// The product of one row of A with one column of B, 16 bytes each.
template <class A, class B>
struct Bytes {
  static s32 dot(const u8* a, const u8* b) {
    const A* x = reinterpret_cast<const A*>(a);
    const B* y = reinterpret_cast<const B*>(b);
    s32 sum = 0;
    for (int k = 0; k < 16; ++k) sum += s32{x[k]} * s32{y[k]};
    return sum;
  }
};

template <bool SignedA, bool SignedB>
struct HalfBytes {
  template <bool Signed>
  static s32 low(u8 byte) {
    return Signed ? static_cast<s8>(byte << 4) >> 4 : byte & 15;
  }
  template <bool Signed>
  static s32 high(u8 byte) {
    return Signed ? static_cast<s8>(byte) >> 4 : byte >> 4;
  }
  static s32 dot(const u8* a, const u8* b) {
    s32 sum = 0;
    for (int k = 0; k < 16; ++k)
      sum += low<SignedA>(a[k]) * low<SignedB>(b[k]) + high<SignedA>(a[k]) * high<SignedB>(b[k]);
    return sum;
  }
};

template <bool And>
struct Bits {
  static s32 dot(const u8* a, const u8* b) {
    const u64* x = reinterpret_cast<const u64*>(a);
    const u64* y = reinterpret_cast<const u64*>(b);
    s32 sum = 0;
    for (int word = 0; word < 2; ++word)
      sum += __builtin_popcountll(And ? x[word] & y[word] : x[word] ^ y[word]);
    return sum;
  }
};

// D[8 * Rows][8] = A * B + C in `Steps` steps of 16 bytes of k.
template <class Product, u32 Rows, u32 Steps, bool Saturate>
void mma_integer(u8* registers, const Instruction& in, u32 mask, Warp&) {
  u32 result[2 * Rows][kLanes];
  for (u32 part = 0; part < 2 * Rows; ++part) {
    const u32* c = at<u32>(registers, in.product.c[part]);
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 row = lane / 4, column = lane % 4 * 2 + part % 2;
      s64 sum = static_cast<s32>(c[lane]);
      for (u32 step = 0; step < Steps; ++step)
        sum += Product::dot(registers + in.product.a[part / 2 + Rows * step] + 16 * row,
                            registers + in.product.b[step] + 16 * column);
      if constexpr (Saturate)
        sum =
            std::clamp<s64>(sum, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max());
      result[part][lane] = static_cast<u32>(sum);
    }
  }
  for (u32 part = 0; part < 2 * Rows; ++part)
    write_lanes(registers, in.product.d[part], mask, result[part]);
}

template <class Product, u32 Rows, u32 Steps>
void add_one(Table& table, const std::string& shape, const std::string& types, bool saturating) {
  const auto add = [&](const std::string& name, Handler run) {
    table.push_back({"mma." + name, run, Kind::collective, Class::tensor, "fragment",
                     "fragment,fragment,fragment"});
  };
  add(shape + ".s32." + types + ".s32", &mma_integer<Product, Rows, Steps, false>);
  if (saturating)
    add(shape + ".satfinite.s32." + types + ".s32", &mma_integer<Product, Rows, Steps, true>);
}

template <class Product>
void add_bytes(Table& table, const std::string& types) {
  add_one<Product, 1, 1>(table, "m8n8k16", types, true);
}

template <class Product>
void add_half_bytes(Table& table, const std::string& types) {
  add_one<Product, 1, 1>(table, "m8n8k32", types, true);
  add_one<Product, 2, 1>(table, "m16n8k32", types, true);
  add_one<Product, 2, 2>(table, "m16n8k64", types, true);
}

template <class Product>
void add_bits(Table& table, const std::string& operation) {
  add_one<Product, 1, 1>(table, "m8n8k128" + operation, "b1.b1", false);
  add_one<Product, 2, 1>(table, "m16n8k128" + operation, "b1.b1", false);
  add_one<Product, 2, 2>(table, "m16n8k256" + operation, "b1.b1", false);
}

}  // namespace

void add_integer_matrix(Table& table) {
  add_bytes<Bytes<s8, s8>>(table, "s8.s8"), add_bytes<Bytes<u8, u8>>(table, "u8.u8");
  add_bytes<Bytes<s8, u8>>(table, "s8.u8"), add_bytes<Bytes<u8, s8>>(table, "u8.s8");
  add_half_bytes<HalfBytes<true, true>>(table, "s4.s4"),
      add_half_bytes<HalfBytes<false, false>>(table, "u4.u4");
  add_half_bytes<HalfBytes<true, false>>(table, "s4.u4"),
      add_half_bytes<HalfBytes<false, true>>(table, "u4.s4");
  add_bits<Bits<false>>(table, ".xor.popc"), add_bits<Bits<true>>(table, ".and.popc");
}

}  // namespace workbench::ptx
