// mma in float64 beside the tensor core's own sums: what it rounds, and drops, is what it adds.
#include <algorithm>

#include "numerics/errors.hpp"

namespace workbench::ptx::numerics {
namespace {

constexpr u32 kRows = 16, kColumns = 8, kMostDepth = 16;

// A factor as rows along K: of A its rows, of B its columns.
struct Factor {
  f64 value[kRows][kMostDepth], shadow[kRows][kMostDepth];
  u32 blame[kRows];  // of the row's largest error
  f64 incoming[kRows];
  bool exact = true;

  // A register holds eight rows; `tall`: registers alternate between the upper and lower eight.
  void read(const RegisterShadows& shadows, const u8* registers, const Slot* slots, u32 count,
            bool tall, Type type) {
    const u32 in_register = 4 * type.parts;
    std::fill_n(blame, kRows, 0), std::fill_n(incoming, kRows, 0.0);
    for (u32 i = 0; i < count; ++i) {
      Lanes lanes;
      read_lanes(shadows, registers + slots[i], slots[i], type, lanes);
      const u32 first = tall ? i % 2 * 8 : 0, depth = (tall ? i / 2 : i) * in_register;
      for (u32 at = 0; at < kLanes * type.parts; ++at) {
        const u32 row = first + at / in_register, k = depth + at % in_register;
        value[row][k] = lanes.value[at], shadow[row][k] = lanes.shadow[at];
        if (lanes.value[at] == lanes.shadow[at]) continue;
        exact = false;
        const f64 error = std::fabs(lanes.value[at] - lanes.shadow[at]) /
                          std::max(std::fabs(lanes.shadow[at]), 1e-300);
        if (error > incoming[row]) incoming[row] = error, blame[row] = lanes.blame[at];
      }
    }
  }
};

void multiply(const f64 (*a)[kMostDepth], const f64 (*b)[kMostDepth], u32 depth,
              f64 (*out)[kColumns]) {
  alignas(64) f64 turned[kMostDepth][kColumns];
  for (u32 column = 0; column < kColumns; ++column)
    for (u32 k = 0; k < depth; ++k) turned[k][column] = b[column][k];
  for (u32 row = 0; row < kRows; ++row) {
    alignas(64) f64 sums[kColumns] = {};
    for (u32 k = 0; k < depth; ++k)
      for (u32 column = 0; column < kColumns; ++column)
        sums[column] += a[row][k] * turned[k][column];
    std::copy_n(sums, kColumns, out[row]);
  }
}

struct ShadowedProduct {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite&,
                  Handler original) {
    RegisterShadows& shadows = kernel.log->shadows(warp);
    const u32 right = in.product.b[1] == kNoSlot ? 1 : 2;
    Factor a, b;
    a.read(shadows, registers, in.product.a, 2 * right, true, site.factor[0]);
    b.read(shadows, registers, in.product.b, right, false, site.factor[1]);
    Lanes sums[4];
    u32 count = 0;
    for (; count < 4 && site.slot[count] != kNoSlot; ++count)
      read_lanes(shadows, registers + site.slot[count], site.slot[count], site.source[0],
                 sums[count]);
    original(registers, in, mask, warp);
    const u32 depth = right * 4 * site.factor[0].parts;
    alignas(64) f64 product[kRows][kColumns], exact[kRows][kColumns];
    multiply(a.value, b.value, depth, product);
    if (a.exact && b.exact)
      std::copy_n(product[0], kRows * kColumns, exact[0]);
    else
      multiply(a.shadow, b.shadow, depth, exact);
    const u32 in_pair = site.result.parts == 2 ? 1 : 2;
    const s32 pc = warp.block->pc_of(in);
    for (u32 i = 0; i < site.results.size(); ++i) {
      Lanes results;
      f64 expected[Lanes::kMost], incoming[Lanes::kMost];
      read_lanes(shadows, registers + site.results[i], site.results[i], site.result, results);
      for (u32 at = 0; at < kLanes * site.result.parts; ++at) {
        const u32 lane = at / site.result.parts, half = i / in_pair;
        const u32 odd = site.result.parts == 2 ? at % 2 : i % 2;
        const u32 row = lane / 4 + 8 * half, column = lane % 4 * 2 + odd;
        const u32 index = site.source[0].parts == 2 ? half : 2 * half + odd;
        const u32 place = site.source[0].parts == 2 ? 2 * lane + odd : lane;
        const f64 before = sums[index].value[place], was = sums[index].shadow[place];
        expected[at] = before + product[row][column];
        results.shadow[at] = was + exact[row][column];
        const f64 of_sum = std::fabs(before - was),
                  of_factors = std::fabs(product[row][column] - exact[row][column]);
        const bool left = a.incoming[row] >= b.incoming[column];
        incoming[at] = std::max({a.incoming[row], b.incoming[column],
                                 of_sum > 0 ? of_sum / std::max(std::fabs(was), 1e-300) : 0.0});
        incoming[at] = std::min(incoming[at], 1.0);
        results.blame[at] = of_sum >= of_factors ? sums[index].blame[place]
                            : left               ? a.blame[row]
                                                 : b.blame[column];
      }
      add_errors(kernel.log->errors(pc), kernel.log->blame(pc), mask, site.result, results,
                 expected, incoming);
      write_lanes(shadows, registers, site.results[i], site.result, mask, results);
    }
  }
};

// Results without a shadow: their errors are not followed.
struct Lost {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite&,
                  Handler original) {
    original(registers, in, mask, warp);
    RegisterShadows& shadows = kernel.log->shadows(warp);
    for (const Slot slot : site.results) {
      Lanes lanes;
      for (u32 i = 0; i < kLanes * site.result.parts; ++i) {
        lanes.shadow[i] =
            number(registers + slot, site.result, i / site.result.parts, i % site.result.parts);
        lanes.blame[i] = 0;
      }
      write_lanes(shadows, registers, slot, site.result, mask, lanes);
    }
    kernel.log->errors(warp.block->pc_of(in)).lost +=
        site.results.size() * site.result.parts * static_cast<u32>(count_lanes(mask));
  }
};

}  // namespace

std::optional<Handlers> shadowed_product(const TableEntry& entry, const Site& site) {
  const bool is_product = entry.name.starts_with("mma.") || entry.name.starts_with("wgmma.") ||
                          entry.name == "tcgen05.ld";
  if (!is_product || site.results.empty() || site.result.format == Float::f64) return {};
  if (entry.name.starts_with("mma.m16n8") && site.factor[0] && site.factor[1])
    return shadow_handlers<ShadowedProduct>();
  return shadow_handlers<Lost>();
}

}  // namespace workbench::ptx::numerics
