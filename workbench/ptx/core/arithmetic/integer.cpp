// 16- and 32-bit integer arithmetic, logic, shifts and bit fields.
#include "arithmetic/elementwise.hpp"

namespace workbench::ptx {
namespace {

constexpr Class kInt = Class::integer;

inline u32 lop3(u32 a, u32 b, u32 c, s64 table) {
  u32 result = 0;
  for (int row = 0; row < 8; ++row) {
    const u32 keep = (table >> row & 1) ? ~0u : 0u;
    result |= keep & (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  }
  return result;
}

inline u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 pool = u64{b} << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i);
    u32 byte = static_cast<u32>(pool >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = (byte & 0x80) ? 0xff : 0;  // replicate the sign
    result |= byte << (8 * i);
  }
  return result;
}

// The special modes of prmt take their position from the two low bits of the selector.
constexpr u16 kForward[4] = {0x3210, 0x4321, 0x5432, 0x6543},
              kBackward[4] = {0x5670, 0x6701, 0x7012, 0x0123};
constexpr u16 kEdgeLeft[4] = {0x3210, 0x3211, 0x3222, 0x3333},
              kEdgeRight[4] = {0x0000, 0x1110, 0x2210, 0x3210};
constexpr u16 kByte[4] = {0x0000, 0x1111, 0x2222, 0x3333},
              kHalf[4] = {0x1010, 0x3232, 0x1010, 0x3232};

inline u32 extract_unsigned(u32 value, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0 || position > 31) return 0;
  const u32 shifted = value >> position;
  return length >= 32 ? shifted : shifted & ((1u << length) - 1);
}

inline u32 extract_signed(u32 value, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0) return 0;
  const u32 sign_at = position + length - 1 > 31 ? 31 : position + length - 1;
  const u32 fill = (value >> sign_at & 1) ? ~0u : 0u;
  if (position > 31) return fill;
  const u32 kept = sign_at - position + 1;
  const u32 shifted = value >> position;
  return kept >= 32 ? shifted : (shifted & ((1u << kept) - 1)) | (fill << kept);
}

inline u32 insert(u32 field, u32 base, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0 || position > 31) return base;
  const u32 mask = (length >= 32 ? ~0u : (1u << length) - 1) << position;
  return (base & ~mask) | ((field << position) & mask);
}

inline u32 reverse_bits(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}

template <class T>
inline T saturate(s64 x, s64 low, s64 high) {
  return static_cast<T>(x < low ? low : x > high ? high : x);
}

// Four-way dot product of bytes; each side signed or unsigned.
template <class A, class B>
inline u32 dot4(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<u32>(s32{static_cast<A>(a >> 8 * i)} * s32{static_cast<B>(b >> 8 * i)});
  return c;
}

template <class A, class B>
inline u32 dot2(u32 a, u32 b, u32 c, s64 high) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<u32>(s32{static_cast<A>(a >> 16 * i)} *
                          s32{static_cast<B>(b >> (8 * i + 16 * high))});
  return c;
}

}  // namespace

void add_integer(Table& table) {
  auto add = [&](const char* name, auto function) { table.push_back(op(name, kInt, function)); };
  add("add.b16", [](u16 a, u16 b) -> u16 { return a + b; });
  add("add.b32", [](u32 a, u32 b) -> u32 { return a + b; });
  add("sub.b16", [](u16 a, u16 b) -> u16 { return a - b; });
  add("sub.b32", [](u32 a, u32 b) -> u32 { return a - b; });
  add("add.sat.s32",
      [](s32 a, s32 b) -> s32 { return saturate<s32>(s64{a} + b, INT32_MIN, INT32_MAX); });
  add("sub.sat.s32",
      [](s32 a, s32 b) -> s32 { return saturate<s32>(s64{a} - b, INT32_MIN, INT32_MAX); });
  add("mul.lo.b16", [](u16 a, u16 b) -> u16 { return static_cast<u16>(u32{a} * b); });
  add("mul.lo.b32", [](u32 a, u32 b) -> u32 { return a * b; });
  add("mul.hi.s16", [](s16 a, s16 b) -> s16 { return static_cast<s16>((s32{a} * b) >> 16); });
  add("mul.hi.u16", [](u16 a, u16 b) -> u16 { return static_cast<u16>((u32{a} * b) >> 16); });
  add("mul.hi.s32", [](s32 a, s32 b) -> s32 { return static_cast<s32>((s64{a} * b) >> 32); });
  add("mul.hi.u32", [](u32 a, u32 b) -> u32 { return static_cast<u32>((u64{a} * b) >> 32); });
  add("mul.wide.s16", [](s16 a, s16 b) -> s32 { return s32{a} * b; });
  add("mul.wide.u16", [](u16 a, u16 b) -> u32 { return u32{a} * b; });
  add("mul24.lo.s32",
      [](s32 a, s32 b) -> u32 { return static_cast<u32>(s64{a << 8 >> 8} * (b << 8 >> 8)); });
  add("mul24.lo.u32", [](u32 a, u32 b) -> u32 { return (a & 0xffffff) * (b & 0xffffff); });
  add("mad.lo.b16", [](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>(u32{a} * b + c); });
  add("mad.lo.b32", [](u32 a, u32 b, u32 c) -> u32 { return a * b + c; });
  add("mad.hi.s32",
      [](s32 a, s32 b, u32 c) -> u32 { return static_cast<u32>((s64{a} * b) >> 32) + c; });
  add("mad.hi.u32",
      [](u32 a, u32 b, u32 c) -> u32 { return static_cast<u32>((u64{a} * b) >> 32) + c; });
  add("mad.hi.s16",
      [](s16 a, s16 b, u16 c) -> u16 { return static_cast<u16>(((s32{a} * b) >> 16) + c); });
  add("mad.hi.u16",
      [](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>((u32{a} * b >> 16) + c); });
  add("mad.hi.sat.s32", [](s32 a, s32 b, s32 c) -> s32 {
    return saturate<s32>(((s64{a} * b) >> 32) + c, INT32_MIN, INT32_MAX);
  });
  add("mul24.hi.s32", [](s32 a, s32 b) -> u32 {
    return static_cast<u32>((s64{a << 8 >> 8} * (b << 8 >> 8)) >> 16);
  });
  add("mul24.hi.u32", [](u32 a, u32 b) -> u32 {
    return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) >> 16);
  });
  add("mad24.lo.s32", [](s32 a, s32 b, u32 c) -> u32 {
    return static_cast<u32>(s64{a << 8 >> 8} * (b << 8 >> 8)) + c;
  });
  add("mad24.lo.u32",
      [](u32 a, u32 b, u32 c) -> u32 { return (a & 0xffffff) * (b & 0xffffff) + c; });
  add("mad24.hi.s32", [](s32 a, s32 b, u32 c) -> u32 {
    return static_cast<u32>((s64{a << 8 >> 8} * (b << 8 >> 8)) >> 16) + c;
  });
  add("mad24.hi.u32", [](u32 a, u32 b, u32 c) -> u32 {
    return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) >> 16) + c;
  });
  add("mad24.hi.sat.s32", [](s32 a, s32 b, s32 c) -> s32 {
    return saturate<s32>(static_cast<s32>((s64{a << 8 >> 8} * (b << 8 >> 8)) >> 16) + s64{c},
                         INT32_MIN, INT32_MAX);
  });
  add("mad.wide.s16", [](s16 a, s16 b, u32 c) -> u32 { return static_cast<u32>(s32{a} * b) + c; });
  add("mad.wide.u16", [](u16 a, u16 b, u32 c) -> u32 { return u32{a} * b + c; });
  // Division by zero is unspecified in PTX; these are the results of the hardware's instruction
  // sequence.
  add("div.s16", [](s16 a, s16 b) -> s16 { return b == 0 ? -1 : static_cast<s16>(s32{a} / b); });
  add("div.u16", [](u16 a, u16 b) -> u16 { return b == 0 ? 0xffff : a / b; });
  add("div.s32", [](s32 a, s32 b) -> s32 { return b == 0 ? -1 : static_cast<s32>(s64{a} / b); });
  add("div.u32", [](u32 a, u32 b) -> u32 { return b == 0 ? ~0u : a / b; });
  add("rem.s16", [](s16 a, s16 b) -> s16 { return b == 0 ? a : static_cast<s16>(s32{a} % b); });
  add("rem.u16", [](u16 a, u16 b) -> u16 { return b == 0 ? a : a % b; });
  add("rem.s32", [](s32 a, s32 b) -> s32 { return b == 0 ? a : static_cast<s32>(s64{a} % b); });
  add("rem.u32", [](u32 a, u32 b) -> u32 { return b == 0 ? a : a % b; });
  add("min.s16", [](s16 a, s16 b) -> s16 { return a < b ? a : b; });
  add("max.s16", [](s16 a, s16 b) -> s16 { return a > b ? a : b; });
  add("min.u16", [](u16 a, u16 b) -> u16 { return a < b ? a : b; });
  add("max.u16", [](u16 a, u16 b) -> u16 { return a > b ? a : b; });
  add("min.s32", [](s32 a, s32 b) -> s32 { return a < b ? a : b; });
  add("max.s32", [](s32 a, s32 b) -> s32 { return a > b ? a : b; });
  add("min.u32", [](u32 a, u32 b) -> u32 { return a < b ? a : b; });
  add("max.u32", [](u32 a, u32 b) -> u32 { return a > b ? a : b; });
  add("min.relu.s32", [](s32 a, s32 b) -> s32 {
    const s32 m = a < b ? a : b;
    return m < 0 ? 0 : m;
  });
  add("max.relu.s32", [](s32 a, s32 b) -> s32 {
    const s32 m = a > b ? a : b;
    return m < 0 ? 0 : m;
  });
  add("neg.s16", [](u16 a) -> u16 { return static_cast<u16>(0u - a); });
  add("neg.s32", [](u32 a) -> u32 { return 0u - a; });
  add("abs.s16", [](u16 a) -> u16 { return static_cast<u16>(a & 0x8000 ? 0u - a : a); });
  add("abs.s32", [](u32 a) -> u32 { return a >> 31 ? 0u - a : a; });
  add("sad.s32",
      [](s32 a, s32 b, u32 c) -> u32 { return c + (a < b ? u32(b) - u32(a) : u32(a) - u32(b)); });
  add("sad.u32", [](u32 a, u32 b, u32 c) -> u32 { return c + (a < b ? b - a : a - b); });

  add("sad.s16",
      [](s16 a, s16 b, u16 c) -> u16 { return static_cast<u16>(c + (a < b ? b - a : a - b)); });
  add("sad.u16",
      [](u16 a, u16 b, u16 c) -> u16 { return static_cast<u16>(c + (a < b ? b - a : a - b)); });

  add("and.b16", [](u16 a, u16 b) -> u16 { return a & b; });
  add("or.b16", [](u16 a, u16 b) -> u16 { return a | b; });
  add("xor.b16", [](u16 a, u16 b) -> u16 { return a ^ b; });
  add("not.b16", [](u16 a) -> u16 { return ~a; });
  add("and.b32", [](u32 a, u32 b) -> u32 { return a & b; });
  add("or.b32", [](u32 a, u32 b) -> u32 { return a | b; });
  add("xor.b32", [](u32 a, u32 b) -> u32 { return a ^ b; });
  add("not.b32", [](u32 a) -> u32 { return ~a; });
  add("cnot.b16", [](u16 a) -> u16 { return a == 0; });
  add("cnot.b32", [](u32 a) -> u32 { return a == 0; });
  // Shift counts past the width give zero, or the sign for arithmetic shifts.
  add("shl.b16",
      [](u16 a, u32 b) -> u16 { return b > 15 ? 0 : static_cast<u16>(u32{a} << (b & 15)); });
  add("shl.b32", [](u32 a, u32 b) -> u32 { return b > 31 ? 0 : a << (b & 31); });
  add("shr.u16", [](u16 a, u32 b) -> u16 { return b > 15 ? 0 : a >> (b & 15); });
  add("shr.s16", [](s16 a, u32 b) -> s16 { return a >> (b > 15 ? 15 : b); });
  add("shr.u32", [](u32 a, u32 b) -> u32 { return b > 31 ? 0 : a >> (b & 31); });
  add("shr.s32", [](s32 a, u32 b) -> s32 { return a >> (b > 31 ? 31 : b); });
  add("shf.l.wrap.b32", [](u32 a, u32 b, u32 c) -> u32 {
    return static_cast<u32>((u64{b} << 32 | a) << (c & 31) >> 32);
  });
  add("shf.r.wrap.b32",
      [](u32 a, u32 b, u32 c) -> u32 { return static_cast<u32>((u64{b} << 32 | a) >> (c & 31)); });
  add("shf.l.clamp.b32", [](u32 a, u32 b, u32 c) -> u32 {
    return static_cast<u32>((u64{b} << 32 | a) << (c > 32 ? 32 : c) >> 32);
  });
  add("shf.r.clamp.b32", [](u32 a, u32 b, u32 c) -> u32 {
    return static_cast<u32>((u64{b} << 32 | a) >> (c > 32 ? 32 : c));
  });
  table.push_back(immediate_op("lop3.b32", kInt, "b32,b32,b32,imm",
                               [](u32 a, u32 b, u32 c, s64 k) -> u32 { return lop3(a, b, c, k); }));

  add("prmt.b32", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, c); });
  add("prmt.b32.f4e", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kForward[c & 3]); });
  add("prmt.b32.b4e", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kBackward[c & 3]); });
  add("prmt.b32.rc8", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kByte[c & 3]); });
  add("prmt.b32.ecl", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kEdgeLeft[c & 3]); });
  add("prmt.b32.ecr", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kEdgeRight[c & 3]); });
  add("prmt.b32.rc16", [](u32 a, u32 b, u32 c) -> u32 { return prmt(a, b, kHalf[c & 3]); });
  add("bfe.u32", [](u32 a, u32 b, u32 c) -> u32 { return extract_unsigned(a, b, c); });
  add("bfe.s32", [](u32 a, u32 b, u32 c) -> u32 { return extract_signed(a, b, c); });
  add("bfi.b32", [](u32 a, u32 b, u32 c, u32 d) -> u32 { return insert(a, b, c, d); });
  add("popc.b32", [](u32 a) -> u32 { return static_cast<u32>(__builtin_popcount(a)); });
  add("clz.b32", [](u32 a) -> u32 { return a ? static_cast<u32>(__builtin_clz(a)) : 32u; });
  add("brev.b32", [](u32 a) -> u32 { return reverse_bits(a); });
  add("bfind.u32", [](u32 a) -> u32 { return a ? 31u - static_cast<u32>(__builtin_clz(a)) : ~0u; });
  add("bfind.s32", [](s32 a) -> u32 {
    const u32 x = static_cast<u32>(a < 0 ? ~a : a);
    return x ? 31u - static_cast<u32>(__builtin_clz(x)) : ~0u;
  });
  add("bfind.shiftamt.u32",
      [](u32 a) -> u32 { return a ? static_cast<u32>(__builtin_clz(a)) : ~0u; });
  add("bfind.shiftamt.s32", [](s32 a) -> u32 {
    const u32 x = static_cast<u32>(a < 0 ? ~a : a);
    return x ? static_cast<u32>(__builtin_clz(x)) : ~0u;
  });
  add("dp4a.s32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot4<s8, s8>(a, b, c); });
  add("dp4a.u32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot4<u8, u8>(a, b, c); });
  add("dp4a.s32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot4<s8, u8>(a, b, c); });
  add("dp4a.u32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot4<u8, s8>(a, b, c); });
  add("dp2a.lo.s32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<s16, s8>(a, b, c, 0); });
  add("dp2a.hi.s32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<s16, s8>(a, b, c, 1); });
  add("dp2a.lo.s32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<s16, u8>(a, b, c, 0); });
  add("dp2a.hi.s32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<s16, u8>(a, b, c, 1); });
  add("dp2a.lo.u32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<u16, s8>(a, b, c, 0); });
  add("dp2a.hi.u32.s32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<u16, s8>(a, b, c, 1); });
  add("dp2a.lo.u32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<u16, u8>(a, b, c, 0); });
  add("dp2a.hi.u32.u32", [](u32 a, u32 b, u32 c) -> u32 { return dot2<u16, u8>(a, b, c, 1); });
}

}  // namespace workbench::ptx
