// The PTX inside machine code: ptxas -lineinfo keeps it in a section, for debuggers. Its lines end
// with a NUL, and those of .loc and .file directives are empty.
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr const char* kSection = ".nv_debug_ptx_txt";
constexpr u64 kMostImageBytes = u64{1} << 32;

template <class T>
const T* record(const char* image, u64 offset, u64 count = 1) {
  const u64 at = reinterpret_cast<u64>(image) + offset;
  const bool fits = offset < kMostImageBytes && count < kMostImageBytes / sizeof(T);
  return fits && mapped(at, count * sizeof(T)) ? reinterpret_cast<const T*>(at) : nullptr;
}

}  // namespace

bool is_machine_code(const char* image) { return !std::strncmp(image, ELFMAG, SELFMAG); }

bool unpack_machine_code(const char* image, std::string& ptx) {
  const auto* head = record<Elf64_Ehdr>(image, 0);
  if (!head || head->e_ident[EI_CLASS] != ELFCLASS64) return false;
  const auto* sections = record<Elf64_Shdr>(image, head->e_shoff, head->e_shnum);
  if (!sections || head->e_shstrndx >= head->e_shnum) return false;
  const Elf64_Shdr& names = sections[head->e_shstrndx];
  const char* text = record<char>(image, names.sh_offset, names.sh_size);
  const std::size_t length = std::strlen(kSection) + 1;
  for (u32 i = 0; text && i < head->e_shnum; ++i) {
    const Elf64_Shdr& one = sections[i];
    if (one.sh_name + length > names.sh_size || std::memcmp(text + one.sh_name, kSection, length))
      continue;
    const char* lines = record<char>(image, one.sh_offset, one.sh_size);
    if (!lines) return false;
    ptx.assign(lines, one.sh_size);
    std::replace(ptx.begin(), ptx.end(), '\0', '\n');
    return ptx.find(".version") != std::string::npos;
  }
  return false;
}

}  // namespace workbench::driver
