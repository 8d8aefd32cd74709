// From the names of the machine's instructions to handlers on elements.
#include "exact/handlers.hpp"

#include <algorithm>
#include <array>

#include "exact/ring.hpp"
#include "warp.hpp"

namespace workbench::ptx::exact {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

constexpr std::array kFloats = {
    "f32",    "f64",    "f16",    "bf16",   "f16x2",  "bf16x2",  "f32x2",  "tf32",   "e4m3",
    "e5m2",   "e2m3",   "e3m2",   "e2m1",   "e4m3x2", "e5m2x2",  "e2m3x2", "e3m2x2", "e2m1x2",
    "e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4", "ue8m0x2", "s2f6x2", "ue8m0",  "ue4m3"};

}  // namespace

Name::Name(const std::string& name) : modifiers(split(name)) {
  base = modifiers.front();
  type = modifiers.back();
  modifiers.erase(modifiers.begin());
  if (!modifiers.empty()) modifiers.pop_back();
}

bool Name::has(const std::string& modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

bool Name::only(std::initializer_list<const char*> allowed) const {
  return std::all_of(modifiers.begin(), modifiers.end(), [&](const std::string& one) {
    return std::find(allowed.begin(), allowed.end(), one) != allowed.end();
  });
}

bool on_floats(const std::string& name) {
  if (name.starts_with("tcgen05.mma") || name == "tcgen05.ld.red") return true;
  const std::vector<std::string> parts = split(name);
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return std::find(kFloats.begin(), kFloats.end(), part) != kFloats.end() || part.ends_with("x4");
  });
}

std::optional<Handlers> handlers_for(const std::string& name) {
  const Name parts(name);
  if (parts.base == "mma") return matrix_product(name);
  if (parts.base == "wgmma") return group_product(name);
  if (parts.base == "tcgen05") return tensor_product(name);
  if (parts.base == "atom") return atomic(name);
  if (parts.base == "setp" || parts.base == "set") return comparison(parts);
  if (parts.base == "redux") return reduction(parts);
  if (parts.base == "cvt") return conversion(parts);
  return arithmetic(parts);
}

void refuse(u8*, const Instruction& in, u32 mask, Warp& warp) {
  throw Stop{{.problem = Problem::without_rule,
              .pc = warp.block->pc_of(in),
              .block = warp.block->index,
              .thread = warp.thread(first_lane(mask))}};
}

}  // namespace workbench::ptx::exact
