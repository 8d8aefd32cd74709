// Bit masks and bit fields, and integers packed two or four to a register.
#include <algorithm>

#include "arithmetic/elementwise.hpp"
#include "codes.hpp"

namespace workbench::ptx {
namespace {

constexpr Class kInt = Class::integer;

// `length` ones from bit `position` on; .wrap takes both modulo 32.
inline u32 mask_of(u32 position, u32 length, bool wrap) {
  if (wrap)
    position &= 31, length &= 31;
  else
    position = std::min(position, 32u), length = std::min(length, 32u);
  return static_cast<u32>(((u64{1} << length) - 1) << position);
}

// The low `size` bits of a, sign-extended if they are signed; .clamp limits `size` to 32.
inline u32 extend(u32 a, u32 size, bool wrap, bool is_signed) {
  size = wrap ? size & 31 : std::min(size, 32u);
  if (size == 0) return 0;
  const u32 shift = 32 - size;
  return is_signed ? static_cast<u32>(static_cast<s32>(a << shift) >> shift) : a << shift >> shift;
}

// The offset-th set bit from `base` upwards (offset > 0), downwards (< 0), or base itself; all ones
// if there is none.
inline u32 find_nth_set(u32 mask, u32 base, s32 offset) {
  const s32 step = offset < 0 ? -1 : 1;
  s64 left = offset == 0 ? 1 : s64{offset} * step;
  for (s64 bit = base; bit >= 0 && bit < 32; bit += step) {
    if ((mask >> bit & 1) && --left == 0) return static_cast<u32>(bit);
    if (offset == 0) break;
  }
  return ~0u;
}

// ---- video instructions on bytes and halves; the immediate consists of Video flags ----

template <int Count>
inline s32 part_of(u32 word, int i, bool is_signed) {
  constexpr int bits = 32 / Count;
  return is_signed ? static_cast<s32>(word << (32 - bits - bits * i)) >> (32 - bits)
                   : static_cast<s32>(word << (32 - bits - bits * i) >> (32 - bits));
}

template <int Count, class F>
inline u32 packed(u32 a, u32 b, u32 c, s64 flags) {
  constexpr int bits = 32 / Count;
  u32 result = 0;
  s64 sum = 0;
  for (int i = 0; i < Count; ++i) {
    s32 value = F{}(part_of<Count>(a, i, flags & Video::signed_a),
                    part_of<Count>(b, i, flags & Video::signed_b));
    if (flags & Video::saturate) {
      const s32 low = flags & Video::signed_d ? -(1 << (bits - 1)) : 0,
                high = (1 << (bits - (flags & Video::signed_d ? 1 : 0))) - 1;
      value = std::clamp(value, low, high);
    }
    sum += value;
    result |= (static_cast<u32>(value) & ((u64{1} << bits) - 1)) << (bits * i);
  }
  return flags & Video::add ? c + static_cast<u32>(sum) : result;
}

template <class F>
void add_video(Table& table, const std::string& name, F) {
  table.push_back(immediate_op(
      name + "2", kInt, "b32,b32,b32",
      [](u32 a, u32 b, u32 c, s64 flags) -> u32 { return packed<2, F>(a, b, c, flags); }));
  table.push_back(immediate_op(
      name + "4", kInt, "b32,b32,b32",
      [](u32 a, u32 b, u32 c, s64 flags) -> u32 { return packed<4, F>(a, b, c, flags); }));
}

// cvt.pack: clamps a and b to `bits` each, and places a above b, and c above both. Immediate: the
// bits, plus 64 for signed results.
inline u32 clamp_and_pack(s32 a, s32 b, u32 c, s64 kind) {
  const int bits = static_cast<int>(kind & 63);
  const s32 low = kind & 64 ? -(1 << (bits - 1)) : 0,
            high = (1 << (bits - (kind & 64 ? 1 : 0))) - 1;
  const u32 mask = (1u << bits) - 1;
  const u32 both = (static_cast<u32>(std::clamp(a, low, high)) & mask) << bits |
                   (static_cast<u32>(std::clamp(b, low, high)) & mask);
  return bits == 16 ? both : c << 2 * bits | both;
}

}  // namespace

void add_fields(Table& table) {
  auto add = [&](const char* name, auto function) { table.push_back(op(name, kInt, function)); };
  auto halves = [&](const char* name, auto function) {
    table.push_back(packed_op(name, kInt, function));
  };
  add("bmsk.clamp.b32", [](u32 a, u32 b) -> u32 { return mask_of(a, b, false); });
  add("bmsk.wrap.b32", [](u32 a, u32 b) -> u32 { return mask_of(a, b, true); });
  add("szext.clamp.u32", [](u32 a, u32 b) -> u32 { return extend(a, b, false, false); });
  add("szext.clamp.s32", [](u32 a, u32 b) -> u32 { return extend(a, b, false, true); });
  add("szext.wrap.u32", [](u32 a, u32 b) -> u32 { return extend(a, b, true, false); });
  add("szext.wrap.s32", [](u32 a, u32 b) -> u32 { return extend(a, b, true, true); });
  add("fns.b32", [](u32 a, u32 b, s32 c) -> u32 { return find_nth_set(a, b, c); });
  halves("add.b16x2", [](u16 a, u16 b) -> u16 { return a + b; });
  halves("min.s16x2", [](s16 a, s16 b) -> s16 { return std::min(a, b); });
  halves("max.s16x2", [](s16 a, s16 b) -> s16 { return std::max(a, b); });
  halves("min.u16x2", [](u16 a, u16 b) -> u16 { return std::min(a, b); });
  halves("max.u16x2", [](u16 a, u16 b) -> u16 { return std::max(a, b); });
  halves("min.relu.s16x2", [](s16 a, s16 b) -> s16 { return std::max<s16>(std::min(a, b), 0); });
  halves("max.relu.s16x2", [](s16 a, s16 b) -> s16 { return std::max<s16>(std::max(a, b), 0); });
  table.push_back(immediate_op(
      "cvt.pack.sat.b32", Class::conversion, "b32,b32,b32",
      [](s32 a, s32 b, u32 c, s64 kind) -> u32 { return clamp_and_pack(a, b, c, kind); }));
  add_video(table, "vadd", [](s32 a, s32 b) { return a + b; });
  add_video(table, "vsub", [](s32 a, s32 b) { return a - b; });
  add_video(table, "vavrg", [](s32 a, s32 b) { return (a + b + (a + b >= 0)) >> 1; });
  add_video(table, "vabsdiff", [](s32 a, s32 b) { return a < b ? b - a : a - b; });
  add_video(table, "vmin", [](s32 a, s32 b) { return std::min(a, b); });
  add_video(table, "vmax", [](s32 a, s32 b) { return std::max(a, b); });
}

}  // namespace workbench::ptx
