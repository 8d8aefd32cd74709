// Comparisons of elements, by the order of their f16 patterns.
#include <algorithm>
#include <iterator>

#include "arithmetic/elementwise.hpp"
#include "exact/handlers.hpp"
#include "exact/lanes.hpp"

namespace workbench::ptx::exact {
namespace {

// In the order of kTests.
enum Test { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan, kTestCount };
const char* const kTests[kTestCount] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <int Which>
bool holds(u16 a, u16 b) {
  const bool unordered = a >= kUndefined || b >= kUndefined;
  const u16 x = tables->rank[a], y = tables->rank[b];
  switch (Which) {
    case eq: return !unordered && x == y;
    case ne: return !unordered && x != y;
    case lt: return !unordered && x < y;
    case le: return !unordered && x <= y;
    case gt: return !unordered && x > y;
    case ge: return !unordered && x >= y;
    case equ: return unordered || x == y;
    case neu: return unordered || x != y;
    case ltu: return unordered || x < y;
    case leu: return unordered || x <= y;
    case gtu: return unordered || x > y;
    case geu: return unordered || x >= y;
    case num: return !unordered;
    default: return unordered;
  }
}

template <int Which, class T>
void run(u8* registers, const Instruction& in, u32 mask, Warp&) {
  using Bits = typename T::Bits;
  Codes a, b;
  T::read(at<const Bits>(registers, in.comparison.a), a);
  T::read(at<const Bits>(registers, in.comparison.b), b);
  alignas(64) u8 flags[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    flags[lane] = holds<Which>(a.at[lane], b.at[lane]) ? 1 : 0;
  set_comparison(registers, in, mask, pack_mask(flags));
}

template <class T, std::size_t... Which>
Handlers by_test(std::size_t number, std::index_sequence<Which...>) {
  static constexpr Handler all[] = {&run<static_cast<int>(Which), T>...};
  return Handlers(all[number]);
}

// set: 1 or 0, or all bits of a half or none.
template <int Which, class T, int Pack, bool AllBits>
void set(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const u16* a = at<const u16>(registers, in.elementwise.source[0]);
  const u16* b = at<const u16>(registers, in.elementwise.source[1]);
  const u16 yes = AllBits ? 0xffff : T::write(kOne);
  alignas(64) u16 out[static_cast<std::size_t>(kLanes * Pack)];
  for (int i = 0; i < kLanes * Pack; ++i)
    out[i] = holds<Which>(T::read(a[i]), T::read(b[i])) ? yes : u16{0};
  write_register<T, Pack>(registers, in.elementwise.destination, mask, out);
}

template <class T, int Pack, bool AllBits, std::size_t... Which>
Handlers set_by_test(std::size_t number, std::index_sequence<Which...>) {
  static constexpr Handler all[] = {&set<static_cast<int>(Which), T, Pack, AllBits>...};
  return Handlers(all[number]);
}

template <class T, std::size_t... Which>
std::optional<Handlers> set_of(std::size_t number, const std::string& to, const std::string& type,
                               std::index_sequence<Which...> tests) {
  if (to == type) return set_by_test<T, 1, false>(number, tests);
  if (to == type + "x2") return set_by_test<T, 2, false>(number, tests);
  if (to == "u32") return set_by_test<T, 2, true>(number, tests);
  return std::nullopt;
}

}  // namespace

std::optional<Handlers> comparison(const Name& name) {
  if (name.modifiers.empty()) return std::nullopt;
  const auto test = std::find(std::begin(kTests), std::end(kTests), name.modifiers[0]);
  if (test == std::end(kTests)) return std::nullopt;
  const auto number = static_cast<std::size_t>(test - std::begin(kTests));
  constexpr std::make_index_sequence<kTestCount> tests;
  if (name.base == "set") {
    const std::string& to = name.modifiers.back();
    return name.type.starts_with("b") ? set_of<BfloatCode>(number, to, "bf16", tests)
                                      : set_of<HalfCode>(number, to, "f16", tests);
  }
  if (name.type == "f32") return by_test<Single>(number, tests);
  if (name.type == "f16") return by_test<HalfCode>(number, tests);
  if (name.type == "bf16") return by_test<BfloatCode>(number, tests);
  if (name.type == "f64") return by_test<Double>(number, tests);
  return std::nullopt;
}

}  // namespace workbench::ptx::exact
