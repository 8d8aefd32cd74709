// atom and red on global, shared and generic memory, as atomic operations of the host.
//
// Names: "atom.global.add.f32". The lanes of a warp go one after the other, lowest first; `red` is
// an atom that keeps no old value.
#include <mutex>

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

// ---- 128 bits, in two registers of 64 ----

struct Wide {
  u64 low, high;
  bool operator==(const Wide& other) const = default;
};

#ifdef __x86_64__
#define PTX_WITH_WIDE_EXCHANGE [[gnu::target("cx16")]]
#else
#define PTX_WITH_WIDE_EXCHANGE
#endif

// Puts `value` in place of `expected` if that is there; returns what was there.
PTX_WITH_WIDE_EXCHANGE Wide exchange_wide(u8* where, Wide expected, Wide value) {
  using Bits = unsigned __int128;
  if (reinterpret_cast<std::uintptr_t>(where) % sizeof(Bits)) {
    // The host's memory is less aligned than the device's: other workers come here, too.
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    Wide old;
    std::memcpy(&old, where, sizeof old);
    if (old == expected) std::memcpy(where, &value, sizeof value);
    return old;
  }
  return bits_as<Wide>(__sync_val_compare_and_swap(reinterpret_cast<Bits*>(where),
                                                   bits_as<Bits>(expected), bits_as<Bits>(value)));
}

template <Space S, bool Compares, bool Observed>
void atomic_wide(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S, Observed>(registers, in, mask, warp, sizeof(Wide), true, true, request);
  const auto value = [&](Slot low, Slot high, u32 lane) {
    return Wide{at<const u64>(registers, low)[lane], at<const u64>(registers, high)[lane]};
  };
  const operands::Atomic& atomic = in.atomic;
  alignas(64) u64 low[kLanes] = {}, high[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, request.mask) {
    const Wide first = value(atomic.operand, atomic.operand_high, lane);
    Wide old;
    if constexpr (Compares) {
      const Wide second = value(atomic.second, atomic.second_high, lane);
      old = exchange_wide(request.host[lane], first, second);
    } else {
      Wide guess{};
      while ((old = exchange_wide(request.host[lane], guess, first)) != guess) guess = old;
    }
    low[lane] = old.low;
    high[lane] = old.high;
  }
  if (atomic.old != kNoSlot) write_lanes(registers, atomic.old, mask, low);
  if (atomic.old_high != kNoSlot) write_lanes(registers, atomic.old_high, mask, high);
}

template <bool Compares>
void add_wide(Table& table, const std::string& name) {
  const auto add = [&](const char* space, Handlers run, Class group) {
    table.push_back({std::string("atom.") + space + "." + name + ".b128", run, Kind::plain, group,
                     "b64,b64", "address,b64,b64"});
  };
  add("global",
      {&atomic_wide<Space::global, Compares, false>, &atomic_wide<Space::global, Compares, true>},
      Class::global);
  add("shared",
      {&atomic_wide<Space::shared, Compares, false>, &atomic_wide<Space::shared, Compares, true>},
      Class::shared);
  add("generic",
      {&atomic_wide<Space::generic, Compares, false>, &atomic_wide<Space::generic, Compares, true>},
      Class::global);
}

struct Packed {
  u32 bits;
};

template <class T, class F>
inline Packed on_halves(Packed a, Packed b, F function) {
  const auto half = [&](u32 x, u32 y) {
    const f32 result = function(to_f32(T{static_cast<u16>(x)}), to_f32(T{static_cast<u16>(y)}));
    return u32{from_f32<T>(result).bits};
  };
  return Packed{half(a.bits >> 16, b.bits >> 16) << 16 | half(a.bits, b.bits)};
}

// `shared`: also in shared memory.
template <class T, class F>
void add_everywhere(Table& table, const std::string& name, F, bool shared = true) {
  const std::string width = sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";
  const auto add = [&](const char* space, Handlers run, Class group) {
    table.push_back({std::string("atom.") + space + "." + name, run, Kind::plain, group, width,
                     "address," + width});
  };
  add("global", {&atomic<Space::global, T, F, false>, &atomic<Space::global, T, F, true>},
      Class::global);
  if (shared)
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

// Of f16 or bf16 and of two of them.
template <class T, class F>
void add_halves(Table& table, const std::string& name, const std::string& type, bool shared, F) {
  add_everywhere<T>(
      table, name + "." + type, [](T a, T b, T) { return from_f32<T>(F{}(to_f32(a), to_f32(b))); },
      shared);
  add_everywhere<Packed>(
      table, name + "." + type + "x2",
      [](Packed a, Packed b, Packed) { return on_halves<T>(a, b, F{}); }, shared);
}

// PTX has minima and maxima for vectors in global memory alone.
template <class T>
void add_halves(Table& table, const std::string& type) {
  add_halves<T>(table, "add", type, true, [](f32 a, f32 b) { return a + b; });
  add_halves<T>(table, "min", type, false, [](f32 a, f32 b) { return minimum(a, b); });
  add_halves<T>(table, "max", type, false, [](f32 a, f32 b) { return maximum(a, b); });
}

}  // namespace

void add_atomics(Table& table) {
  add_wide<false>(table, "exch");
  add_wide<true>(table, "cas");
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
  add_halves<Half>(table, "f16");
  add_halves<Bfloat>(table, "bf16");
}

}  // namespace workbench::ptx
