// 64-bit integer arithmetic, and the widening products of address computations.
#include "arithmetic/slow_path.hpp"

namespace workbench::ptx {
namespace {

constexpr Class kInt = Class::integer;

// A 64-bit field of `length` bits; see the 32-bit forms in integer.cpp.
inline u64 extract_unsigned(u64 value, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0 || position > 63) return 0;
  const u64 shifted = value >> position;
  return length >= 64 ? shifted : shifted & ((u64{1} << length) - 1);
}

inline u64 extract_signed(u64 value, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0) return 0;
  const u32 sign_at = position + length - 1 > 63 ? 63 : position + length - 1;
  const u64 fill = (value >> sign_at & 1) ? ~u64{0} : 0;
  if (position > 63) return fill;
  const u32 kept = sign_at - position + 1;
  const u64 shifted = value >> position;
  return kept >= 64 ? shifted : (shifted & ((u64{1} << kept) - 1)) | (fill << kept);
}

inline u64 insert(u64 field, u64 base, u32 position, u32 length) {
  position &= 255, length &= 255;
  if (length == 0 || position > 63) return base;
  const u64 mask = (length >= 64 ? ~u64{0} : (u64{1} << length) - 1) << position;
  return (base & ~mask) | ((field << position) & mask);
}

}  // namespace

void add_wide_integer(Table& table) {
  auto add = [&](const char* name, auto function) { table.push_back(op(name, kInt, function)); };
  auto divide = [&](const char* name, auto function) {
    table.push_back(op_with_slow_path(name, kInt, function, kSlowDivideInteger));
  };
  add("add.b64", [](u64 a, u64 b) -> u64 { return a + b; });
  add("sub.b64", [](u64 a, u64 b) -> u64 { return a - b; });
  add("mul.lo.b64", [](u64 a, u64 b) -> u64 { return a * b; });
  add("mul.hi.s64",
      [](s64 a, s64 b) -> s64 { return static_cast<s64>((static_cast<__int128>(a) * b) >> 64); });
  add("mul.hi.u64", [](u64 a, u64 b) -> u64 {
    return static_cast<u64>((static_cast<unsigned __int128>(a) * b) >> 64);
  });
  add("mul.wide.s32", [](s32 a, s32 b) -> s64 { return s64{a} * b; });
  add("mul.wide.u32", [](u32 a, u32 b) -> u64 { return u64{a} * b; });
  add("mad.lo.b64", [](u64 a, u64 b, u64 c) -> u64 { return a * b + c; });
  add("mad.hi.s64", [](s64 a, s64 b, u64 c) -> u64 {
    return static_cast<u64>((static_cast<__int128>(a) * b) >> 64) + c;
  });
  add("mad.hi.u64", [](u64 a, u64 b, u64 c) -> u64 {
    return static_cast<u64>((static_cast<unsigned __int128>(a) * b) >> 64) + c;
  });
  add("sad.s64",
      [](s64 a, s64 b, u64 c) -> u64 { return c + (a < b ? u64(b) - u64(a) : u64(a) - u64(b)); });
  add("sad.u64", [](u64 a, u64 b, u64 c) -> u64 { return c + (a < b ? b - a : a - b); });
  add("cnot.b64", [](u64 a) -> u64 { return a == 0; });
  add("bfind.s64", [](s64 a) -> u32 {
    const u64 x = static_cast<u64>(a < 0 ? ~a : a);
    return x ? 63u - static_cast<u32>(__builtin_clzll(x)) : ~0u;
  });
  add("bfind.shiftamt.u64",
      [](u64 a) -> u32 { return a ? static_cast<u32>(__builtin_clzll(a)) : ~0u; });
  add("bfind.shiftamt.s64", [](s64 a) -> u32 {
    const u64 x = static_cast<u64>(a < 0 ? ~a : a);
    return x ? static_cast<u32>(__builtin_clzll(x)) : ~0u;
  });
  add("mad.wide.s32", [](s32 a, s32 b, u64 c) -> u64 { return static_cast<u64>(s64{a} * b) + c; });
  add("mad.wide.u32", [](u32 a, u32 b, u64 c) -> u64 { return u64{a} * b + c; });
  divide("div.s64", [](s64 a, s64 b) -> s64 {
    return b == 0 ? -1 : b == -1 ? static_cast<s64>(0 - static_cast<u64>(a)) : a / b;
  });
  divide("div.u64", [](u64 a, u64 b) -> u64 { return b == 0 ? ~u64{0} : a / b; });
  divide("rem.s64", [](s64 a, s64 b) -> s64 { return b == 0 ? a : b == -1 ? 0 : a % b; });
  divide("rem.u64", [](u64 a, u64 b) -> u64 { return b == 0 ? a : a % b; });
  add("min.s64", [](s64 a, s64 b) -> s64 { return a < b ? a : b; });
  add("max.s64", [](s64 a, s64 b) -> s64 { return a > b ? a : b; });
  add("min.u64", [](u64 a, u64 b) -> u64 { return a < b ? a : b; });
  add("max.u64", [](u64 a, u64 b) -> u64 { return a > b ? a : b; });
  add("neg.s64", [](u64 a) -> u64 { return 0 - a; });
  add("abs.s64", [](u64 a) -> u64 { return a >> 63 ? 0 - a : a; });
  add("and.b64", [](u64 a, u64 b) -> u64 { return a & b; });
  add("or.b64", [](u64 a, u64 b) -> u64 { return a | b; });
  add("xor.b64", [](u64 a, u64 b) -> u64 { return a ^ b; });
  add("not.b64", [](u64 a) -> u64 { return ~a; });
  add("shl.b64", [](u64 a, u32 b) -> u64 { return b > 63 ? 0 : a << (b & 63); });
  add("shr.u64", [](u64 a, u32 b) -> u64 { return b > 63 ? 0 : a >> (b & 63); });
  add("shr.s64", [](s64 a, u32 b) -> s64 { return a >> (b > 63 ? 63 : b); });
  add("bfe.u64", [](u64 a, u32 b, u32 c) -> u64 { return extract_unsigned(a, b, c); });
  add("bfe.s64", [](u64 a, u32 b, u32 c) -> u64 { return extract_signed(a, b, c); });
  add("bfi.b64", [](u64 a, u64 b, u32 c, u32 d) -> u64 { return insert(a, b, c, d); });
  add("popc.b64", [](u64 a) -> u32 { return static_cast<u32>(__builtin_popcountll(a)); });
  add("clz.b64", [](u64 a) -> u32 { return a ? static_cast<u32>(__builtin_clzll(a)) : 64u; });
  add("brev.b64", [](u64 a) -> u64 {
    u64 x = __builtin_bswap64(a);
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0full) | (x & 0x0f0f0f0f0f0f0f0full) << 4;
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    return (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
  });
  add("bfind.u64",
      [](u64 a) -> u32 { return a ? 63u - static_cast<u32>(__builtin_clzll(a)) : ~0u; });
}

}  // namespace workbench::ptx
