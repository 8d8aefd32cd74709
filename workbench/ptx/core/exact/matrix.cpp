// mma of elements with factors of 16 bits and more.
#include <map>
#include <memory>

#include "exact/fragment.hpp"
#include "exact/handlers.hpp"

namespace workbench::ptx::exact {
namespace {

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

template <class T, u32 Steps>
constexpr u32 kDepth = Factors<T>::kInRow * Steps;

// The codes of the rows of A, or of the columns of B, in `Eights` of them.
template <class T, u32 Steps, u32 Eights>
void read_factor(const u8* registers, const u32* slots, u16 (*codes)[kDepth<T, Steps>]) {
  constexpr u32 in_row = Factors<T>::kInRow;
  alignas(64) u16 tile[kRows * in_row];
  for (u32 step = 0; step < Steps; ++step)
    for (u32 eight = 0; eight < Eights; ++eight) {
      Factors<T>::read(registers + slots[eight + Eights * step], tile);
      for (u32 row = 0; row < kRows; ++row)
        std::memcpy(codes[kRows * eight + row] + in_row * step, tile + in_row * row,
                    sizeof(u16) * in_row);
    }
}

// A factor as it is multiplied. One that is all zeros is zero.
template <class T, u32 Steps, u32 Eights>
struct Fragment {
  static constexpr u32 kRegisters = Steps * Eights, kDepth = exact::kDepth<T, Steps>;
  std::conditional_t<Eights == 2, LeftFactor<kDepth>, RightFactor<kDepth>> factor;
  bool special;

  void read(const u8* registers, const u32* slots) {
    alignas(64) u16 codes[kRows * Eights][kDepth];
    read_factor<T, Steps, Eights>(registers, slots, codes);
    special = has_special<kRows * Eights * kDepth>(codes[0]);
    factor = decltype(factor)(codes);
  }
};

// The fragment in these registers. A warp multiplies each of A by several of B, and the other way
// round, so that those read before are kept, by their first register.
template <class F>
const F& fragment_in(const u8* registers, const u32* slots) {
  constexpr u32 words = kLanes / 2, most = 16;
  struct Entry {
    u64 raw[F::kRegisters][words];
    F made;
  };
  static thread_local const std::unique_ptr<Entry[]> entries = std::make_unique<Entry[]>(most);
  Entry& entry = entries[slots[0] / (kLanes * sizeof(u32)) % most];
  u64 other = 0;
  for (u32 i = 0; i < F::kRegisters; ++i) {
    const u64* raw = reinterpret_cast<const u64*>(registers + slots[i]);
    for (u32 word = 0; word < words; ++word) other |= raw[word] ^ entry.raw[i][word];
  }
  if (!other) return entry.made;
  for (u32 i = 0; i < F::kRegisters; ++i)
    std::memcpy(entry.raw[i], registers + slots[i], sizeof entry.raw[i]);
  entry.made.read(registers, slots);
  return entry.made;
}

// D[16][8] = A * B + C in steps of sixteen bytes of K. Everything is read before anything is
// written, as registers may be the same.
template <class A, class B, u32 Steps, class D, class C>
void multiply_add(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const auto& a = fragment_in<Fragment<A, Steps, 2>>(registers, in.product.a);
  const auto& b = fragment_in<Fragment<B, Steps, 1>>(registers, in.product.b);
  alignas(64) u16 sums[2 * kRows][kColumns];
  for (u32 half = 0; half < 2; ++half)
    read_sums<C>(registers, in.product.c, half, sums + kRows * half);
  if (a.special || b.special || has_special<2 * kRows * kColumns>(sums[0])) {
    alignas(64) u16 left[2 * kRows][kDepth<A, Steps>], right[kColumns][kDepth<B, Steps>];
    read_factor<A, Steps, 2>(registers, in.product.a, left);
    read_factor<B, Steps, 1>(registers, in.product.b, right);
    add_symbols(left, right, sums);
  } else {
    multiply_rows(a.factor, b.factor, sums);
  }
  for (u32 half = 0; half < 2; ++half)
    write_sums<D>(registers, in.product.d, half, mask, sums + kRows * half);
}

// D[8][8] = A[8][4] * B[4][8] + C. Lane 4r + c holds A[r][c], B[c][r] and C[r][2c], C[r][2c + 1].
void multiply_doubles(u8* registers, const Instruction& in, u32 mask, Warp&) {
  Codes a, b, sums[2];
  Double::read(at<const u64>(registers, in.product.a[0]), a);
  Double::read(at<const u64>(registers, in.product.b[0]), b);
  for (u32 part = 0; part < 2; ++part) {
    Double::read(at<const u64>(registers, in.product.c[part]), sums[part]);
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 row = lane / 4, column = lane % 4 * 2 + part;
      u16& one = sums[part].at[lane];
      for (u32 k = 0; k < 4; ++k) one = sum(one, product(a.at[4 * row + k], b.at[4 * column + k]));
    }
  }
  for (u32 part = 0; part < 2; ++part) {
    alignas(64) u64 out[kLanes];
    Double::write(sums[part], out);
    write_lanes(registers, in.product.d[part], mask, out);
  }
}

}  // namespace

std::optional<Handlers> matrix_product(const std::string& name) {
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
      {"m8n8k4.f64.f64.f64.f64", &multiply_doubles}};
  if (!name.starts_with("mma.")) return std::nullopt;
  const std::string rest = name.substr(4);
  if (const auto found = all.find(rest); found != all.end()) return Handlers(found->second);
  return rest.starts_with("sp.") ? sparse_product(rest) : small_product(rest);
}

}  // namespace workbench::ptx::exact
