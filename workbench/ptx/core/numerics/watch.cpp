#include "numerics/watch.hpp"

#include "numerics/errors.hpp"

namespace workbench::ptx::numerics {
namespace {

bool overlap(Slot a, u32 a_bytes, Slot b, u32 b_bytes) {
  return a != kNoSlot && b != kNoSlot && a < b + b_bytes * kLanes && b < a + a_bytes * kLanes;
}

// Notes which operands a site's results overwrite.
void find_overwritten(const Instruction& in, Site& site) {
  const u32 made = site.register_bytes ? site.register_bytes : site.result.bytes();
  for (u32 i = 0; i < site.sources; ++i) {
    bool over = overlap(site.destination, made, site.slot[i], site.bytes[i]);
    for (const Slot slot : site.results) over |= overlap(slot, made, site.slot[i], site.bytes[i]);
    site.overwritten |= (over ? 1u : 0u) << i;
  }
  if (!site.memory_bytes) return;
  for (u32 i = 0; i < in.elements && i < std::size(in.access.data); ++i)
    site.addresses_overwritten |= overlap(in.access.data[i], made, in.address, 8);
}

}  // namespace

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char letter : name)
    if (letter == '.' || letter == ',')
      words.emplace_back();
    else
      words.back() += letter;
  return words;
}

void watch(WatchedKernel& kernel, const std::vector<const TableEntry*>& entries, Log& log) {
  kernel.log = &log;
  kernel.sites.resize(kernel.code.size());
  bool halves = false, singles = false, brains = false;
  for (const TableEntry* const entry : entries)
    for (const std::string& word : words_of(entry->name)) {
      halves |= word.starts_with("f16") || word.starts_with("e4m3") || word.starts_with("e2m1");
      singles |= word.starts_with("f32") || word == "tf32";
      brains |= word.starts_with("bf16");
    }
  kernel.halves = halves || brains;
  kernel.exponent = halves ? 0x7c00 : singles || brains ? 0x7f80 : 0x7ff0;
  for (std::size_t i = 0; i < kernel.code.size(); ++i) {
    Instruction& in = kernel.code[i];
    const TableEntry& entry = *entries[i];
    for (const auto find : {&arithmetic, &conversion, &movement, &access}) {
      Site site;
      std::optional<Handlers> found = find(entry, in, site);
      if (!found) continue;
      site.original = Handlers(in.run, in.run_observed);
      find_overwritten(in, site);
      kernel.sites[i] = site;
      in.run = found->bare, in.run_observed = found->observed;
      break;
    }
    Site site;
    if (kernel.sites[i].original.bare) continue;
    if (const std::optional<Handlers> found = product(entry, kernel, in, site)) {
      site.original = Handlers(in.run, in.run_observed);
      kernel.sites[i] = site;
      in.run = found->bare, in.run_observed = found->observed;
    }
  }
  log.begin(kernel.code.size(), kernel.image.size());
  if (log.follows_errors) follow_errors(kernel, entries);
}

void follow_errors(WatchedKernel& kernel, const std::vector<const TableEntry*>& entries) {
  kernel.shadow_sites.resize(kernel.code.size());
  for (std::size_t i = 0; i < kernel.code.size(); ++i) {
    const Site& site = kernel.sites[i];
    if (!site.original.bare) continue;
    Instruction& in = kernel.code[i];
    ShadowSite shadow;
    std::optional<Handlers> found = shadowed_product(*entries[i], site);
    if (!found) found = shadowed_access(*entries[i], site, shadow);
    if (!found) found = shadowed_movement(*entries[i], site, shadow);
    if (!found) found = shadowed_code(*entries[i], site, shadow);
    if (!found) found = shadowed_arithmetic(*entries[i], kernel, site, shadow);
    if (!found) continue;
    shadow.original = Handlers(in.run, in.run_observed);
    kernel.shadow_sites[i] = shadow;
    in.run = found->bare, in.run_observed = found->observed;
  }
}

}  // namespace workbench::ptx::numerics
