#include "printf.hpp"

#include <algorithm>
#include <cstdio>

#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

constexpr std::size_t kLongest = 4096;  // most characters of one string

// One conversion of a format: "%-08.3lld" has flags "-0", width "8" and precision ".3"; its
// argument has 8 bytes.
struct Conversion {
  std::string head;  // everything before the length modifier
  bool wide = false;
  int stars = 0;
  char kind = 0;
};

Conversion read_conversion(const std::string& format, std::size_t& at) {
  Conversion found;
  found.head = "%";
  while (at < format.size() && std::strchr("-+ #0123456789.*", format[at])) {
    found.stars += format[at] == '*';
    found.head += format[at++];
  }
  while (at < format.size() && std::strchr("hlLjzt", format[at])) {
    found.wide |= format[at] != 'h' && format[at] != 'L';
    ++at;
  }
  if (at < format.size()) found.kind = format[at++];
  return found;
}

template <class T>
std::string print_one(const Conversion& conversion, const std::string& tail, const int* stars,
                      T value) {
  const std::string format = conversion.head + tail;
  char buffer[kLongest];
  int length = 0;
  if (conversion.stars == 0)
    length = std::snprintf(buffer, sizeof buffer, format.c_str(), value);
  else if (conversion.stars == 1)
    length = std::snprintf(buffer, sizeof buffer, format.c_str(), stars[0], value);
  else
    length = std::snprintf(buffer, sizeof buffer, format.c_str(), stars[0], stars[1], value);
  return std::string(buffer, (length < 0 ? 0
                                         : std::min<std::size_t>(static_cast<std::size_t>(length),
                                                                 sizeof buffer - 1)));
}

}  // namespace

const u8* MemoryView::find(u64 address, u64 bytes) const {
  const Block& block = *warp.block;
  const u64 window = address >> 56, offset = address & kWindowMask;
  const u64 size =
      window == kSharedWindow >> 56 ? block.launch->shared_bytes : block.kernel->local_bytes;
  if (window == kSharedWindow >> 56)
    return offset + bytes <= size ? block.shared + offset : nullptr;
  if (window == kLocalWindow >> 56)
    return offset + bytes <= size ? warp.local + lane * size + offset : nullptr;
  const Buffer* buffer = block.find(address, bytes);
  return buffer ? buffer->host + (address - buffer->address) : nullptr;
}

std::string MemoryView::text(u64 address) const {
  std::string found;
  while (found.size() < kLongest) {
    const u8* byte = find(address + found.size(), 1);
    if (!byte) {
      warp.block->problem(Problem::out_of_bounds, instruction, warp.thread(lane),
                          address + found.size(), 1);
      break;
    }
    if (!*byte) break;
    found += static_cast<char>(*byte);
  }
  return found;
}

std::string format_text(const MemoryView& memory, u64 format_address, u64 arguments, int& count) {
  const std::string format = memory.text(format_address);
  std::string out;
  u64 cursor = arguments;
  const auto next = [&](u64 bytes) -> u64 {
    cursor = (cursor + bytes - 1) / bytes * bytes;
    const u8* from = memory.find(cursor, bytes);
    u64 value = 0;
    if (from)
      std::memcpy(&value, from, bytes);
    else
      memory.warp.block->problem(Problem::out_of_bounds, memory.instruction,
                                 memory.warp.thread(memory.lane), cursor, static_cast<u32>(bytes));
    cursor += bytes;
    ++count;
    return value;
  };
  for (std::size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    const std::size_t start = i++;
    const Conversion conversion = read_conversion(format, i);
    if (conversion.kind == '%') {
      out += '%';
      continue;
    }
    if (!conversion.kind || !std::strchr("diouxXcsfFeEgGaAp", conversion.kind)) {
      out += format.substr(start, i - start);
      continue;
    }
    int stars[2] = {};
    for (int k = 0; k < std::min(conversion.stars, 2); ++k)
      stars[k] = static_cast<int>(next(4)), --count;
    const char kind = conversion.kind;
    if (std::strchr("fFeEgGaA", kind)) {
      out += print_one(conversion, std::string(1, kind), stars, bits_as<f64>(next(8)));
    } else if (kind == 's') {
      out += print_one(conversion, "s", stars, memory.text(next(8)).c_str());
    } else if (kind == 'p') {
      out += print_one(conversion, "p", stars, reinterpret_cast<void*>(next(8)));
    } else if (kind == 'c') {
      out += print_one(conversion, "c", stars, static_cast<int>(next(4)));
    } else {
      const u64 raw = next(conversion.wide ? 8 : 4);
      const bool is_signed = kind == 'd' || kind == 'i';
      const s64 value = conversion.wide ? static_cast<s64>(raw)
                        : is_signed     ? s64{static_cast<s32>(raw)}
                                        : static_cast<s64>(raw);
      out += print_one(conversion, std::string("ll") + kind, stars, static_cast<long long>(value));
    }
  }
  return out;
}

}  // namespace workbench::ptx
