// atom and red on global, shared and generic memory, as atomic operations of the host.
//
// Names: "atom.global.add.f32". The lanes of a warp go one after the other, lowest first; `red` is
// an atom that keeps no old value.
#include "access.hpp"
#include "numeric.hpp"

namespace workbench::ptx {
namespace {

template <class Bits, class F>
inline Bits exchange_with(u8* where, F function) {
  Bits* target = reinterpret_cast<Bits*>(where);
  Bits old = __atomic_load_n(target, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(target, &old, function(old), true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {}
  return old;
}

// F: (old, operand, second operand) -> new, all of the operand's own type T.
template <Space S, class T, class F, bool Observed>
void atomic(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  using Bits =
      std::conditional_t<sizeof(T) == 2, u16, std::conditional_t<sizeof(T) == 4, u32, u64>>;
  Request request;
  resolve<S, Observed>(registers, in, mask, warp, sizeof(T), true, true, request);
  const T* operand = at<const T>(registers, in.atomic.operand);
  const T* second =
      at<const T>(registers, in.atomic.second == kNoSlot ? in.atomic.operand : in.atomic.second);
  alignas(64) Bits results[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, request.mask) {
    results[lane] = exchange_with<Bits>(request.host[lane], [&](Bits old) {
      return bits_as<Bits>(F{}(bits_as<T>(old), operand[lane], second[lane]));
    });
  }
  if (in.atomic.old != kNoSlot) write_lanes(registers, in.atomic.old, mask, results);
}

struct Packed {
  u32 bits;
};

template <class T>
inline Packed add_packed(Packed a, Packed b) {
  const auto half = [](u32 x, u32 y) {
    return u32{from_f32<T>(to_f32(T{static_cast<u16>(x)}) + to_f32(T{static_cast<u16>(y)})).bits};
  };
  return Packed{half(a.bits >> 16, b.bits >> 16) << 16 | half(a.bits, b.bits)};
}

template <class T, class F>
void add_everywhere(Table& table, const std::string& name, F) {
  const std::string width = sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";
  const auto add = [&](const char* space, Handlers run, Class group) {
    table.push_back({std::string("atom.") + space + "." + name, run, Kind::plain, group, width,
                     "address," + width});
  };
  add("global", {&atomic<Space::global, T, F, false>, &atomic<Space::global, T, F, true>},
      Class::global);
  add("shared", {&atomic<Space::shared, T, F, false>, &atomic<Space::shared, T, F, true>},
      Class::shared);
  add("generic", {&atomic<Space::generic, T, F, false>, &atomic<Space::generic, T, F, true>},
      Class::global);
}

template <class T>
void add_bits(Table& table, const std::string& type) {
  add_everywhere<T>(table, "exch." + type, [](T, T b, T) { return b; });
  add_everywhere<T>(table, "cas." + type, [](T a, T b, T c) { return a == b ? c : a; });
  if constexpr (sizeof(T) >= 4) {
    add_everywhere<T>(table, "and." + type, [](T a, T b, T) { return a & b; });
    add_everywhere<T>(table, "or." + type, [](T a, T b, T) { return a | b; });
    add_everywhere<T>(table, "xor." + type, [](T a, T b, T) { return a ^ b; });
  }
}

template <class T>
void add_order(Table& table, const std::string& type) {
  add_everywhere<T>(table, "min." + type, [](T a, T b, T) { return b < a ? b : a; });
  add_everywhere<T>(table, "max." + type, [](T a, T b, T) { return b > a ? b : a; });
}

}  // namespace

void add_atomics(Table& table) {
  add_bits<u16>(table, "b16"), add_bits<u32>(table, "b32"), add_bits<u64>(table, "b64");
  add_order<s32>(table, "s32"), add_order<u32>(table, "u32"), add_order<s64>(table, "s64"),
      add_order<u64>(table, "u64");
  add_everywhere<u32>(table, "add.b32", [](u32 a, u32 b, u32) { return a + b; });
  add_everywhere<u64>(table, "add.b64", [](u64 a, u64 b, u64) { return a + b; });
  add_everywhere<u32>(table, "inc.u32", [](u32 a, u32 b, u32) { return a >= b ? 0 : a + 1; });
  add_everywhere<u32>(table, "dec.u32",
                      [](u32 a, u32 b, u32) { return a == 0 || a > b ? b : a - 1; });
  add_everywhere<f32>(table, "add.f32", [](f32 a, f32 b, f32) { return a + b; });
  add_everywhere<f64>(table, "add.f64", [](f64 a, f64 b, f64) { return a + b; });
  add_everywhere<Half>(table, "add.f16",
                       [](Half a, Half b, Half) { return to_half(to_f32(a) + to_f32(b)); });
  add_everywhere<Bfloat>(table, "add.bf16", [](Bfloat a, Bfloat b, Bfloat) {
    return to_bfloat(to_f32(a) + to_f32(b));
  });
  add_everywhere<Packed>(table, "add.f16x2",
                         [](Packed a, Packed b, Packed) { return add_packed<Half>(a, b); });
  add_everywhere<Packed>(table, "add.bf16x2",
                         [](Packed a, Packed b, Packed) { return add_packed<Bfloat>(a, b); });
}

}  // namespace workbench::ptx
