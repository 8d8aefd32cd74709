// Lane functions with a directed rounding mode of the host: toward zero, down, up.
//
// Changing the floating-point environment is exact for every operation that the host rounds
// correctly; the call is a barrier across which the compiler moves no arithmetic.
#pragma once
#include <cfenv>

#include "arithmetic/elementwise.hpp"

namespace workbench::ptx {

template <int Mode, class F>
void directed(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const int before = std::fegetround();
  std::fesetround(Mode);
  elementwise<1, F>(registers, in, mask, warp);
  std::fesetround(before);
}

// Adds `base`.rz`suffix`, `base`.rm`suffix` and `base`.rp`suffix`, each with its handler.
inline void add_roundings(Table& table, TableEntry entry, const std::string& base,
                          const std::string& suffix, Handlers rz, Handlers rm, Handlers rp) {
  const auto one = [&](const char* mode, Handlers run) {
    entry.name = base + "." + mode + suffix, entry.run = run;
    table.push_back(entry);
  };
  one("rz", rz), one("rm", rm), one("rp", rp);
}

template <class F>
void add_directed(Table& table, const std::string& base, const std::string& suffix, Class group,
                  F function) {
  add_roundings(table, op("", group, function), base, suffix, &directed<FE_TOWARDZERO, F>,
                &directed<FE_DOWNWARD, F>, &directed<FE_UPWARD, F>);
}

}  // namespace workbench::ptx
