// atom and red on global, shared and generic memory, by atomic operations of the host.
//
// Names: "atom.global.add.f32". The lanes of a warp execute one after the other, lowest first;
// `red` is an atom without the old value.
#include <mutex>

#include "arithmetic/numeric.hpp"
#include "checks/float_sums.hpp"
#include "memory/access.hpp"

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

struct Packed {
  u32 bits;
};

struct Plus {
  f32 operator()(f32 a, f32 b) const { return a + b; }
};

// Additions of floats, whose result may depend on their order (float_sums.hpp).
template <class T>
struct Sum {
  T operator()(T a, T b, T) const { return a + b; }
};

// Applies F, an f32 function, to f16 or bf16.
template <class T, class F>
struct OfHalf {
  T operator()(T a, T b, T) const { return from_f32<T>(F{}(to_f32(a), to_f32(b))); }
};

// Applies F to both halves of a pair.
template <class T, class F>
struct OfHalves {
  static T low(Packed x) { return T{static_cast<u16>(x.bits)}; }
  static T high(Packed x) { return T{static_cast<u16>(x.bits >> 16)}; }
  Packed operator()(Packed a, Packed b, Packed) const {
    const OfHalf<T, F> half;
    return Packed{u32{half(high(a), high(b), {}).bits} << 16 | half(low(a), low(b), {}).bits};
  }
};

template <class T>
f64 wide(T x) {
  if constexpr (std::is_same_v<T, f64>)
    return x;
  else
    return f64{to_f32(x)};
}

// Records a lane's addition to the element at `offset`, which has the format of `sum`.
template <class T, class F>
void watch_element(const Warp& warp, const Instruction& in, const Request& request, u32 lane, T old,
                   T value, F sum, u32 offset = 0) {
  FloatSums& sums = *warp.block->launch->float_sums;
  sums.add(warp, warp.block->pc_of(in),
           {.where = request.host[lane] + offset,
            .address = request.address[lane] + offset,
            .bytes = sizeof(T),
            .lane = lane,
            .old = wide(old),
            .value = wide(value),
            .sum = wide(sum(old, value, T{})),
            .digits = kDigits<T>});
}

// The record of any other operation: its access only.
template <class F>
struct Watch {
  template <class T>
  static void see(const Warp&, const Instruction&, const Request&, const T*, const T*) {}
};

template <class T, class F, class Each>
void watch_lanes(const Warp& warp, const Instruction& in, const Request& request, Each each) {
  const FloatSums* sums = warp.block->launch->float_sums;
  if (sums && sums->watches(warp.block->pc_of(in)))
    PTX_FOR_EACH_LANE (lane, request.mask) each(lane);
}

template <class T, class F>
void watch_sums(const Warp& warp, const Instruction& in, const Request& request, const T* old,
                const T* value) {
  watch_lanes<T, F>(warp, in, request, [&](u32 lane) {
    watch_element(warp, in, request, lane, old[lane], value[lane], F{});
  });
}

template <class T>
struct Watch<Sum<T>> {
  static void see(const Warp& warp, const Instruction& in, const Request& request, const T* old,
                  const T* value) {
    watch_sums<T, Sum<T>>(warp, in, request, old, value);
  }
};

template <class T>
struct Watch<OfHalf<T, Plus>> {
  static void see(const Warp& warp, const Instruction& in, const Request& request, const T* old,
                  const T* value) {
    watch_sums<T, OfHalf<T, Plus>>(warp, in, request, old, value);
  }
};

template <class T>
struct Watch<OfHalves<T, Plus>> {
  static void see(const Warp& warp, const Instruction& in, const Request& request,
                  const Packed* old, const Packed* value) {
    using Pair = OfHalves<T, Plus>;
    const OfHalf<T, Plus> sum;
    watch_lanes<T, Pair>(warp, in, request, [&](u32 lane) {
      watch_element(warp, in, request, lane, Pair::low(old[lane]), Pair::low(value[lane]), sum);
      watch_element(warp, in, request, lane, Pair::high(old[lane]), Pair::high(value[lane]), sum,
                    2);
    });
  }
};

// F: (old, operand, second operand) -> new, all of the operand's type T.
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
  if constexpr (Observed)
    Watch<F>::see(warp, in, request, reinterpret_cast<const T*>(results), operand);
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

// Stores `value` if memory holds `expected`. Returns the old value.
PTX_WITH_WIDE_EXCHANGE Wide exchange_wide(u8* where, Wide expected, Wide value) {
  using Bits = unsigned __int128;
  if (reinterpret_cast<std::uintptr_t>(where) % sizeof(Bits)) {
    // A lock in place of an atomic instruction: the host's memory may be aligned less than the
    // device's; other workers use the same lock.
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

// `shared`: whether to add the forms for shared memory too.
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

// Adds the forms for f16 or bf16, and for pairs of them.
template <class T, class F>
void add_halves(Table& table, const std::string& name, const std::string& type, bool shared, F) {
  add_everywhere<T>(table, name + "." + type, OfHalf<T, F>{}, shared);
  add_everywhere<Packed>(table, name + "." + type + "x2", OfHalves<T, F>{}, shared);
}

// Adds minima and maxima of vectors, which PTX has in global memory only.
template <class T>
void add_halves(Table& table, const std::string& type) {
  add_halves<T>(table, "add", type, true, Plus{});
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
  add_everywhere<f32>(table, "add.f32", Sum<f32>{});
  add_everywhere<f64>(table, "add.f64", Sum<f64>{});
  add_halves<Half>(table, "f16");
  add_halves<Bfloat>(table, "bf16");
}

}  // namespace workbench::ptx
