// mma of factors of 8, 6 and 4 bits, whose types may differ, and mma with block scales.
//
// A function of each type turns factors into f16, scaled by a constant of the type; after that all
// types are treated alike. Products are exact and summed in the order of K, as in matrix_bytes.cpp.
#include <array>
#include <cmath>

#include "matrices/tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

// A factor type. `spread` converts 32 bytes of factors to f16, which are smaller than the factors
// by `scale`.
struct Type {
  void (*spread)(const u8* from, Halves* eights);
  f32 scale;
};

template <class T>
Type type_of() {
  const Halves one{0x3c00};
  return {&Factors<T>::spread, Factors<T>::values(one)[0]};
}

using Register = const u8*;

// Converts a register of a fragment: eight rows, or columns, with 16 factors along K each.
inline void spread_register(const Type& type, Register from, Halves (&eights)[8][2]) {
#pragma GCC unroll 4
  for (u32 pair = 0; pair < 4; ++pair) type.spread(from + kSpreadBytes * pair, eights[2 * pair]);
}

template <u32 Steps>
inline void widen_columns(const Type& type, f32 scale, const Register* registers, Row* b) {
  Halves eights[8][2], tile[8];
  for (u32 step = 0; step < Steps; ++step) {
    spread_register(type, registers[step], eights);
    for (u32 part = 0; part < 2; ++part) {
#pragma GCC unroll 8
      for (u32 n = 0; n < 8; ++n) tile[n] = eights[n][part];
      transpose(tile);
#pragma GCC unroll 8
      for (u32 k = 0; k < 8; ++k) *b++ = widen_eight<Half>(tile[k]) * scale;
    }
  }
}

template <u32 Steps>
inline void widen_rows(const Type& type, const Register* registers, f32* a) {
  Halves eights[8][2];
  for (u32 step = 0; step < Steps; ++step) {
    spread_register(type, registers[step], eights);
    for (u32 row = 0; row < 8; ++row) {
      for (u32 part = 0; part < 2; ++part) {
        const Row values = widen_eight<Half>(eights[row][part]);
        std::memcpy(a + 8 * ((row * Steps + step) * 2 + part), &values, sizeof values);
      }
    }
  }
}

// The factors of a product; A in two halves of eight rows.
template <u32 Steps>
struct Operands {
  static constexpr u32 kDepth = 16 * Steps;
  alignas(64) f32 a[2][8 * kDepth];
  alignas(64) Row b[kDepth];

  // `left`: the registers of A's upper half, then those of its lower half.
  Operands(const Type& type_a, const Type& type_b, const Register (&left)[2][Steps],
           const Register (&right)[Steps]) {
    widen_columns<Steps>(type_b, type_a.scale * type_b.scale, right, b);
    for (u32 half = 0; half < 2; ++half) widen_rows<Steps>(type_a, left[half], a[half]);
  }
};

// multiply_add of tiles.hpp for 16 x 8 x 32.
template <class Sum>
[[gnu::noinline]] void multiply_add(const Type& type_a, const Type& type_b, u8* registers,
                                    const Instruction& in, u32 mask) {
  const auto at = [&](u32 slot) { return Register{registers + slot}; };
  const u32* a = in.product.a;
  const Operands<2> factors(type_a, type_b, {{at(a[0]), at(a[2])}, {at(a[1]), at(a[3])}},
                            {at(in.product.b[0]), at(in.product.b[1])});
  Row sums[2][8];
  for (u32 half = 0; half < 2; ++half) {
    read_sums<Sum>(registers, in.product.c, half, sums[half]);
    multiply_rows<32>(factors.a[half], factors.b, sums[half]);
  }
  for (u32 half = 0; half < 2; ++half)
    write_sums<Sum>(registers, in.product.d, half, mask, sums[half]);
}

template <class A, class B, class Sum>
void mma_small(u8* registers, const Instruction& in, u32 mask, Warp&) {
  static const Type a = type_of<A>(), b = type_of<B>();
  multiply_add<Sum>(a, b, registers, in, mask);
}

// ---- block scales ----

// The scales of `Count` rows of A or columns of B, each with `Chunks` runs of K.
template <u32 Count, u32 Chunks>
struct Scales {
  u8 code[Count][Chunks];
  alignas(32) f32 value[Chunks][Count];

  // lane_of(row or column) is the lane that holds its scales; they begin at byte `first`.
  template <class Format, class F>
  void read(const u32* data, u32 first, Format, F lane_of) {
    for (u32 i = 0; i < Count; ++i) {
      const u32 word = data[lane_of(i)] >> 8 * first;
      for (u32 chunk = 0; chunk < Chunks; ++chunk) {
        code[i][chunk] = static_cast<u8>(word >> 8 * chunk);
        value[chunk][i] = Format::decode(code[i][chunk]);
      }
    }
  }

  // Whether factors and products stay exact in f32 with these scales: powers of two from -46 to 46,
  // or NaN.
  bool moderate() const {
    for (const auto& each : code)
      for (const u8 one : each)
        if (one != 0xff && static_cast<u32>(one - (127 - 46)) > 2 * 46) return false;
    return true;
  }
};

// Multiplies one by one, where a factor times its scale could leave the range of f32: each factor
// gets half of the sum of the exponents.
template <u32 Depth, u32 Chunks>
void multiply_far(const f32* a, const Row* b, const Scales<16, Chunks>& of_a,
                  const Scales<8, Chunks>& of_b, u32 first_row, Row (&sums)[8]) {
  constexpr int kFar = 190;  // beyond this exponent every product but 0 overflows or vanishes
  for (u32 row = 0; row < 8; ++row) {
    for (u32 column = 0; column < 8; ++column) {
      f32 sum = sums[row][column];
      for (u32 k = 0; k < Depth; ++k) {
        const u8 x = of_a.code[first_row + row][k / (Depth / Chunks)];
        const u8 y = of_b.code[column][k / (Depth / Chunks)];
        if (x == 0xff || y == 0xff) {
          sum = bits_as<f32>(0x7fffffffu);
          continue;
        }
        const int total = std::clamp(x + y - 254, -kFar, kFar);
        sum = std::fma(std::ldexp(a[row * Depth + k], total / 2),
                       std::ldexp(b[k][column], total - total / 2), sum);
      }
      sums[row][column] = sum;
    }
  }
}

// Splits a register of 4-bit factors into the first and the second 16 along K, each in the middle
// of a byte.
inline void open_nibbles(Register from, u8 (&to)[2][128]) {
  typedef u8 Sixteen __attribute__((vector_size(16)));
  for (u32 row = 0; row < 8; ++row) {
    Sixteen both;
    std::memcpy(&both, from + 16 * row, sizeof both);
    const Sixteen low = (both & 0x0f) << 2, high = (both & 0xf0) >> 2;
    const Sixteen first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19,  //
                                                  4, 20, 5, 21, 6, 22, 7, 23);
    const Sixteen second = __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27,  //
                                                   12, 28, 13, 29, 14, 30, 15, 31);
    std::memcpy(to[0] + 16 * row, &first, sizeof first);
    std::memcpy(to[1] + 16 * row, &second, sizeof second);
  }
}

template <u32 Steps>
Operands<Steps> factors_of(const Type& type_a, const Type& type_b, u8* registers,
                           const operands::ScaledProduct& in) {
  if constexpr (Steps == 2) {
    const auto at = [&](u32 slot) { return Register{registers + slot}; };
    return Operands<2>(type_a, type_b, {{at(in.a[0]), at(in.a[2])}, {at(in.a[1]), at(in.a[3])}},
                       {at(in.b[0]), at(in.b[1])});
  } else {
    u8 a[4][2][128], b[2][2][128];
    for (u32 i = 0; i < 4; ++i) open_nibbles(registers + in.a[i], a[i]);
    for (u32 i = 0; i < 2; ++i) open_nibbles(registers + in.b[i], b[i]);
    return Operands<4>(type_a, type_b,
                       {{a[0][0], a[0][1], a[2][0], a[2][1]}, {a[1][0], a[1][1], a[3][0], a[3][1]}},
                       {b[0][0], b[0][1], b[1][0], b[1][1]});
  }
}

template <u32 Steps, u32 Chunks, class Format>
[[gnu::noinline]] void multiply_scaled(const Type& type_a, const Type& type_b, u8* registers,
                                       const Instruction& instruction, u32 mask) {
  constexpr u32 depth = 16 * Steps, run = depth / Chunks;
  const operands::ScaledProduct& in = instruction.scaled_product;
  Operands<Steps> factors = factors_of<Steps>(type_a, type_b, registers, in);

  const u64 selectors = at<const u64>(registers, in.selectors)[first_lane(mask)];
  const auto selector = [&](u32 i) { return static_cast<u32>(selectors >> 16 * i & 0xffff); };
  // Other selectors are undefined; the decoder refuses constant ones.
  const u32 byte_a = selector(0) & (4 - Chunks), thread_a = selector(1) & 1;
  const u32 byte_b = selector(2) & (4 - Chunks), thread_b = selector(3) & 3;
  Scales<16, Chunks> of_a;
  Scales<8, Chunks> of_b;
  of_a.read(at<const u32>(registers, in.scale_a), byte_a, Format{},
            [&](u32 row) { return 4 * (row % 8) + 2 * thread_a + row / 8; });
  of_b.read(at<const u32>(registers, in.scale_b), byte_b, Format{},
            [&](u32 column) { return 4 * column + thread_b; });

  const bool exact = std::is_same_v<Format, UE4M3> || (of_a.moderate() && of_b.moderate());
  if (exact)
    for (u32 k = 0; k < depth; ++k)
      factors.b[k] *= *reinterpret_cast<const Row*>(of_b.value[k / run]);
  Row sums[2][8];
  for (u32 half = 0; half < 2; ++half) {
    f32* a = factors.a[half];
    read_sums<f32>(registers, in.c, half, sums[half]);
    if (!exact) {
      multiply_far<depth, Chunks>(a, factors.b, of_a, of_b, 8 * half, sums[half]);
      continue;
    }
    for (u32 row = 0; row < 8; ++row) {
      Row* eights = reinterpret_cast<Row*>(a + row * depth);
      for (u32 i = 0; i < depth / 8; ++i) eights[i] *= of_a.value[8 * i / run][8 * half + row];
    }
    multiply_rows<depth>(a, factors.b, sums[half]);
  }
  for (u32 half = 0; half < 2; ++half) write_sums<f32>(registers, in.d, half, mask, sums[half]);
}

template <class A, class B, u32 Steps, u32 Chunks, class Format>
void mma_scaled(u8* registers, const Instruction& in, u32 mask, Warp&) {
  static const Type a = type_of<A>(), b = type_of<B>();
  multiply_scaled<Steps, Chunks, Format>(a, b, registers, in, mask);
}

// ---- the table ----

void add(Table& table, const std::string& name, Handler run, bool scaled) {
  table.push_back(
      {"mma." + name, run, Kind::collective, Class::tensor, "fragment",
       scaled ? "fragment,fragment,fragment,b32,b32,b64" : "fragment,fragment,fragment"});
}

template <class T>
constexpr bool kByte = std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>;

template <class A, class B>
void add_pair(Table& table, const std::string& types) {
  // matrix_bytes.cpp has the rest.
  if constexpr (!kByte<A> || !kByte<B>) {
    add(table, "m16n8k32.f32." + types + ".f32", &mma_small<A, B, f32>, false);
    add(table, "m16n8k32.f16." + types + ".f16", &mma_small<A, B, Half>, false);
  }
  add(table, "m16n8k32.block_scale.1X.f32." + types + ".f32.ue8m0",
      &mma_scaled<A, B, 2, 1, PowerOfTwo>, true);
}

template <class A>
void add_row(Table& table, const std::string& type) {
  add_pair<A, E4M3>(table, type + ".e4m3");
  add_pair<A, E5M2>(table, type + ".e5m2");
  add_pair<A, E3M2>(table, type + ".e3m2");
  add_pair<A, E2M3>(table, type + ".e2m3");
  add_pair<A, E2M1>(table, type + ".e2m1");
}

}  // namespace

void add_small_matrix(Table& table) {
  add_row<E4M3>(table, "e4m3");
  add_row<E5M2>(table, "e5m2");
  add_row<E3M2>(table, "e3m2");
  add_row<E2M3>(table, "e2m3");
  add_row<E2M1>(table, "e2m1");
  add(table, "m16n8k64.block_scale.2X.f32.e2m1.e2m1.f32.ue8m0",
      &mma_scaled<E2M1, E2M1, 4, 2, PowerOfTwo>, true);
  add(table, "m16n8k64.block_scale.4X.f32.e2m1.e2m1.f32.ue8m0",
      &mma_scaled<E2M1, E2M1, 4, 4, PowerOfTwo>, true);
  add(table, "m16n8k64.block_scale.4X.f32.e2m1.e2m1.f32.ue4m3",
      &mma_scaled<E2M1, E2M1, 4, 4, UE4M3>, true);
}

}  // namespace workbench::ptx
