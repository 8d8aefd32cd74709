// Arithmetic in float64 beside the instruction's own.
#include <algorithm>
#include <iterator>

#include "numerics/errors.hpp"

namespace workbench::ptx::numerics {
namespace {

constexpr const char* kOperations[] = {
    "",    "add", "sub", "mul",  "fma", "contract", "div",  "rcp",  "sqrt", "rsqrt", "ex2",
    "lg2", "sin", "cos", "tanh", "min", "max",      "min3", "max3", "abs",  "neg",   "copysign"};
enum class Operation : u8 {
  same,
  add,
  sub,
  mul,
  fma,
  contract,
  div,
  rcp,
  sqrt,
  rsqrt,
  ex2,
  lg2,
  sin,
  cos,
  tanh,
  min,
  max,
  min3,
  max3,
  abs,
  neg,
  copysign,
  whole
};

template <class F>
void each(u32 count, const f64* a, const f64* b, const f64* c, f64* out, F function) {
#pragma GCC ivdep
  for (u32 i = 0; i < count; ++i) out[i] = function(a[i], b[i], c[i]);
}

void compute(Operation operation, s64 signs, u32 count, const f64* a, const f64* b, const f64* c,
             f64* out) {
  const auto apply = [&](auto function) { each(count, a, b, c, out, function); };
  switch (operation) {
    case Operation::same:
    case Operation::whole: return apply([](f64 x, f64, f64) { return x; });
    case Operation::add: return apply([](f64 x, f64 y, f64) { return x + y; });
    case Operation::sub: return apply([](f64 x, f64 y, f64) { return x - y; });
    case Operation::mul: return apply([](f64 x, f64 y, f64) { return x * y; });
    case Operation::fma: return apply([](f64 x, f64 y, f64 z) { return x * y + z; });
    case Operation::contract: {
      const f64 product = signs & 1 ? -1 : 1, addend = signs & 2 ? -1 : 1;
      return apply([&](f64 x, f64 y, f64 z) { return product * (x * y) + addend * z; });
    }
    case Operation::div: return apply([](f64 x, f64 y, f64) { return x / y; });
    case Operation::rcp: return apply([](f64 x, f64, f64) { return 1 / x; });
    case Operation::sqrt: return apply([](f64 x, f64, f64) { return __builtin_sqrt(x); });
    case Operation::rsqrt: return apply([](f64 x, f64, f64) { return 1 / __builtin_sqrt(x); });
    case Operation::ex2: return apply([](f64 x, f64, f64) { return std::exp2(x); });
    case Operation::lg2: return apply([](f64 x, f64, f64) { return std::log2(x); });
    case Operation::sin: return apply([](f64 x, f64, f64) { return std::sin(x); });
    case Operation::cos: return apply([](f64 x, f64, f64) { return std::cos(x); });
    case Operation::tanh: return apply([](f64 x, f64, f64) { return std::tanh(x); });
    case Operation::min: return apply([](f64 x, f64 y, f64) { return x < y ? x : y; });
    case Operation::max: return apply([](f64 x, f64 y, f64) { return x > y ? x : y; });
    case Operation::min3: return apply([](f64 x, f64 y, f64 z) { return std::min({x, y, z}); });
    case Operation::max3: return apply([](f64 x, f64 y, f64 z) { return std::max({x, y, z}); });
    case Operation::abs: return apply([](f64 x, f64, f64) { return std::fabs(x); });
    case Operation::neg: return apply([](f64 x, f64, f64) { return -x; });
    case Operation::copysign: return apply([](f64 x, f64 y, f64) { return std::copysign(y, x); });
  }
}

f64 relative(f64 value, f64 shadow) {
  return std::min(std::fabs(value - shadow) / std::max(std::fabs(shadow), 1e-300), 1.0);
}

// Blames the operand whose error has the largest part in each result.
void pass_blame(Operation operation, u32 sources, u32 count, const Lanes* operands, u32* blame) {
  alignas(64) f64 most[Lanes::kMost];
  std::fill_n(most, count, 0.0), std::fill_n(blame, count, 0u);
  const bool fused = operation == Operation::fma || operation == Operation::contract;
  const bool factors = operation == Operation::mul || operation == Operation::div;
  for (u32 s = 0; s < sources; ++s) {
    const Lanes& one = operands[s];
    // A factor's error counts as often as the other factor is large.
    const bool weighed = (fused && s < 2) || factors;
    const f64* const other = weighed ? operands[1 - s].shadow : nullptr;
#pragma GCC ivdep
    for (u32 i = 0; i < count; ++i) {
      f64 weight = std::fabs(one.value[i] - one.shadow[i]);
      if (weighed) weight *= std::fabs(other[i]);
      blame[i] = weight > most[i] ? one.blame[i] : blame[i];
      most[i] = weight > most[i] ? weight : most[i];
    }
  }
}

struct ShadowedArithmetic {
  static void run(u8* registers, const Instruction& in, u32 mask, Warp& warp,
                  const WatchedKernel& kernel, const Site& site, const ShadowSite& how,
                  Handler original) {
    RegisterShadows& shadows = kernel.log->shadows(warp);
    const u32 count = kLanes * site.result.parts;
    Lanes operands[3], results;
    for (u32 i = 0; i < how.sources; ++i) read_sources(shadows, registers, site, i, operands[i]);
    original(registers, in, mask, warp);

    const auto operation = static_cast<Operation>(how.operation);
    const Lanes &a = operands[0], &b = operands[how.sources > 1 ? 1 : 0],
                &c = operands[how.sources > 2 ? 2 : 0];
    read_lanes(shadows, registers + site.destination, site.destination, site.result, results);
    alignas(64) f64 expected[Lanes::kMost], incoming[Lanes::kMost];
    bool exact = true;  // whether no operand has an error
    for (u32 i = 0; i < count; ++i) incoming[i] = 0;
    for (u32 s = 0; s < how.sources; ++s) {
      u32 different = 0;
      for (u32 i = 0; i < count; ++i) different |= operands[s].value[i] != operands[s].shadow[i];
      if (!different) continue;
      exact = false;
      for (u32 i = 0; i < count; ++i)
        incoming[i] = std::max(incoming[i], relative(operands[s].value[i], operands[s].shadow[i]));
    }
    if (operation == Operation::whole || how.rounds) {
      std::copy_n(results.value, count, results.shadow);
      std::fill_n(results.blame, count, 0);
      return write_lanes(shadows, registers, site.destination, site.result, mask, results);
    }
    compute(operation, in.immediate, count, a.value, b.value, c.value, expected);
    if (exact)
      std::copy_n(expected, count, results.shadow);
    else
      compute(operation, in.immediate, count, a.shadow, b.shadow, c.shadow, results.shadow);
    std::fill_n(results.blame, count, 0u);
    if (how.saturates)
      for (u32 i = 0; i < count; ++i)
        results.shadow[i] = std::clamp(results.shadow[i], 0.0, 1.0),
        expected[i] = std::clamp(expected[i], 0.0, 1.0);
    if (how.positive)
      for (u32 i = 0; i < count; ++i)
        results.shadow[i] = std::max(results.shadow[i], 0.0),
        expected[i] = std::max(expected[i], 0.0);
    if (!exact) pass_blame(operation, how.sources, count, operands, results.blame);
    add_errors(kernel.log->errors(warp.block->pc_of(in)), kernel.log->blame(warp.block->pc_of(in)),
               mask, site.result, results, expected, incoming);
    write_lanes(shadows, registers, site.destination, site.result, mask, results);
  }

  // A source by the parts of the result: two values that are narrowed to one register stand in it
  // from the highest part down.
  static void read_sources(const RegisterShadows& shadows, const u8* registers, const Site& site,
                           u32 i, Lanes& out) {
    const u32 parts = site.result.parts;
    if (site.source[i].parts == parts)
      return read_lanes(shadows, registers + site.slot[i], site.slot[i], site.source[i], out);
    for (u32 part = 0; part < parts; ++part) {
      const u32 source = parts - 1 - part;
      Lanes one;
      read_lanes(shadows, registers + site.slot[source], site.slot[source], site.source[source],
                 one);
      for (u32 lane = 0; lane < kLanes; ++lane) {
        out.value[lane * parts + part] = one.value[lane];
        out.shadow[lane * parts + part] = one.shadow[lane];
        out.blame[lane * parts + part] = one.blame[lane];
      }
    }
  }
};

// Whether a source is a constant that rounds what it is added to to a whole number, such as
// 1.5 * 2^23: the difference is meant.
bool rounds_to_whole(const Kernel& kernel, const Site& site) {
  for (u32 i = 0; i < site.sources; ++i) {
    if (site.source[i] != Type{Float::f32, 1}) continue;
    const f64 constant =
        std::fabs(number(kernel.image.data() + site.slot[i], site.source[i], 0, 0));
    if (constant >= 0x1p22 && constant <= 0x1p24) return true;
  }
  return false;
}

}  // namespace

void read_lanes(const RegisterShadows& shadows, const u8* lanes, Slot slot, Type type, Lanes& out) {
  const u32 count = kLanes * type.parts;
  const auto read = [&]<class Bits>(const Shadows<Bits>& from, auto value_of) {
    const u32 first = slot / static_cast<u32>(sizeof(Bits));
    const Bits* const bits = reinterpret_cast<const Bits*>(lanes);
    const Bits* const kept = from.bits.data() + first;
    const f64* const value = from.value.data() + first;
    const u32* const blame = from.blame.data() + first;
    for (u32 i = 0; i < count; ++i) out.value[i] = value_of(bits[i]);
#pragma GCC ivdep
    for (u32 i = 0; i < count; ++i) {
      out.shadow[i] = kept[i] == bits[i] ? value[i] : out.value[i];
      out.blame[i] = kept[i] == bits[i] ? blame[i] : 0;
    }
  };
  switch (type.format) {
    case Float::f32: return read(shadows.singles, [](u32 bits) { return f64{bits_as<f32>(bits)}; });
    case Float::f16: return read(shadows.halves, [](u16 bits) { return f64{to_f32(Half{bits})}; });
    case Float::bf16:
      return read(shadows.halves, [](u16 bits) { return f64{to_f32(Bfloat{bits})}; });
    default:
      for (u32 i = 0; i < count; ++i) {
        out.value[i] = out.shadow[i] = number(lanes, type, i / type.parts, i % type.parts);
        out.blame[i] = 0;
      }
  }
}

void write_lanes(RegisterShadows& shadows, const u8* registers, Slot slot, Type type, u32 mask,
                 const Lanes& from) {
  const auto write = [&]<class Bits>(Shadows<Bits>& to) {
    const u32 first = slot / static_cast<u32>(sizeof(Bits)), count = kLanes * type.parts;
    const Bits* const bits = reinterpret_cast<const Bits*>(registers + slot);
    if (mask == kAllLanes) {
      std::copy_n(bits, count, to.bits.data() + first);
      std::copy_n(from.shadow, count, to.value.data() + first);
      std::copy_n(from.blame, count, to.blame.data() + first);
      return;
    }
    PTX_FOR_EACH_LANE (lane, mask)
      for (u32 i = lane * type.parts; i < (lane + 1) * type.parts; ++i)
        to.bits[first + i] = bits[i], to.value[first + i] = from.shadow[i],
                        to.blame[first + i] = from.blame[i];
  };
  if (type.format == Float::f32) return write(shadows.singles);
  if (type.float_bytes() == 2) write(shadows.halves);
}

void add_errors(Errors& errors, u32 pc, u32 mask, Type type, Lanes& results, const f64* expected,
                const f64* incoming) {
  constexpr f64 kLargest = 1.7e308;
  constexpr u32 kSums = 5;
  const u32 count = kLanes * type.parts;
  f64 sums[kSums] = {};
  alignas(64) f64 counted[Lanes::kMost];
  for (u32 i = 0; i < count; ++i) counted[i] = mask >> i / type.parts & 1;
#pragma GCC ivdep
  for (u32 i = 0; i < count; ++i) {
    const f64 value = results.value[i], shadow = results.shadow[i], size = std::fabs(shadow);
    const f64 finite = std::fabs(value) < kLargest && size < kLargest ? counted[i] : 0;
    counted[i] = finite;
    results.blame[i] = std::fabs(value - expected[i]) > std::fabs(expected[i] - shadow) ||
                               (!results.blame[i] && value != expected[i])
                           ? pc
                           : results.blame[i];
  }
  alignas(64) f64 added[Lanes::kMost], inherited[Lanes::kMost], total[Lanes::kMost];
#pragma GCC ivdep
  for (u32 i = 0; i < count; ++i) {
    const f64 value = results.value[i], shadow = results.shadow[i], size = std::fabs(shadow);
    // Where the shadow is 0, any difference counts as 1.
    const f64 inverse = counted[i] != 0 ? 1 / std::max(size, 1e-300) : 0;
    const f64 by_line = counted[i] != 0 ? std::fabs(value - expected[i]) : 0,
              before = counted[i] != 0 ? std::fabs(expected[i] - shadow) : 0,
              both = counted[i] != 0 ? std::fabs(value - shadow) : 0;
    added[i] = std::min(by_line * inverse, 1.0);
    inherited[i] = std::min(before * inverse, 1.0);
    total[i] = std::min(both * inverse, 1.0);
  }
  f64 most_added = 0, most_inherited = 0, most_total = 0;
  for (u32 i = 0; i < count; ++i) {
    sums[0] += added[i] * added[i], sums[1] += inherited[i] * inherited[i];
    sums[2] += counted[i] * incoming[i] * incoming[i], sums[3] += total[i] * total[i];
    sums[4] += counted[i];
    most_added = std::max(most_added, added[i]);
    most_inherited = std::max(most_inherited, inherited[i]);
    most_total = std::max(most_total, total[i]);
  }
  errors.added += sums[0], errors.inherited += sums[1];
  errors.incoming += sums[2], errors.total += sums[3];
  errors.numbers += static_cast<u64>(sums[4]);
  errors.most_added = std::max(errors.most_added, most_added);
  errors.most_inherited = std::max(errors.most_inherited, most_inherited);
  errors.most_total = std::max(errors.most_total, most_total);
}

std::optional<Handlers> shadowed_arithmetic(const TableEntry& entry, const Kernel& kernel,
                                            const Site& site, ShadowSite& shadow) {
  if (!site.result || site.result.format == Float::f64 || site.memory_bytes) return {};
  const std::vector<std::string> words = words_of(entry.name);
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  shadow.saturates = has("sat"), shadow.positive = has("relu");
  shadow.sources = site.sources;
  if (words[0] == "cvt") {
    if (!site.sources) return {};
    shadow.sources = 1;
    const bool whole = has("rni") || has("rzi") || has("rmi") || has("rpi");
    shadow.operation = static_cast<u8>(whole ? Operation::whole : Operation::same);
    return shadow_handlers<ShadowedArithmetic>();
  }
  const auto found = std::find(std::begin(kOperations) + 1, std::end(kOperations), words[0]);
  if (found == std::end(kOperations) || has("xorsign") || site.sources > 3) return {};
  shadow.operation = static_cast<u8>(found - std::begin(kOperations));
  shadow.rounds =
      (words[0] == "add" || words[0] == "sub" || words[0] == "fma" || words[0] == "contract") &&
      rounds_to_whole(kernel, site);
  return shadow_handlers<ShadowedArithmetic>();
}

}  // namespace workbench::ptx::numerics
