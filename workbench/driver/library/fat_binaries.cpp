// Fat binaries, which nvcc embeds in programs: several images of the same code. The simulated
// device runs the newest PTX for it. NVIDIA does not document the format; its layout is known from
// cuobjdump's output, and LLVM's clang writes the same.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr u32 kWrapperMagic = 0x466243b1, kFatMagic = 0xba55ed50;
constexpr u16 kPtx = 1, kMachineCode = 2;
constexpr u64 kLz4 = 0x2000, kZstd = 0x8000;
constexpr u64 kMostBytes = u64{1} << 32;

// The struct that nvcc's registration code passes, with a pointer to the fat binary.
struct Wrapper {
  u32 magic, version;
  const char* data;
  const void* more;
};

struct FatHeader {
  u32 magic;
  u16 version, header_bytes;
  u64 bytes;  // of all entries
};

struct Entry {
  u16 kind, version;
  u32 header_bytes;
  u64 bytes;  // padded
  u32 compressed_bytes, options_offset;
  u16 minor, major;
  u32 arch;
  u32 name_offset, name_bytes;
  u64 flags;
  u64 zero;
  u64 plain_bytes;
};
static_assert(sizeof(FatHeader) == 16 && sizeof(Entry) == 64);

constexpr const char* kRemedy =
    "compile with -arch=compute_XX or -gencode arch=compute_XX,code=compute_XX, which embeds PTX";

[[noreturn]] void damaged() {
  throw Refused{CUDA_ERROR_INVALID_IMAGE, "the fatbin is damaged: its PTX cannot be unpacked"};
}

// A length in LZ4: four bits, then further bytes up to the first below 255.
std::size_t lz4_length(std::size_t first, const u8*& from, const u8* end) {
  if (first != 15) return first;
  for (u8 more = 255; more == 255; first += more) {
    if (from == end) damaged();
    more = *from++;
  }
  return first;
}

// Decompresses a block of LZ4: literals, then a match some bytes back, which may overlap its own
// output.
std::string from_lz4(const u8* from, std::size_t bytes, std::size_t plain) {
  std::string text;
  text.reserve(plain);
  for (const u8* const end = from + bytes; from != end;) {
    const u8 token = *from++;
    const std::size_t literals = lz4_length(token >> 4, from, end);
    if (literals > static_cast<std::size_t>(end - from) || text.size() + literals > plain)
      damaged();
    text.append(reinterpret_cast<const char*>(from), literals);
    from += literals;
    if (from == end) break;  // the last sequence has no match
    if (end - from < 2) damaged();
    const std::size_t back = from[0] | from[1] << 8;
    from += 2;
    std::size_t match = lz4_length(token & 15, from, end) + 4;
    if (!back || back > text.size() || text.size() + match > plain) damaged();
    for (; match; --match) text.push_back(text[text.size() - back]);
  }
  return text;
}

// The system's libzstd, which every distribution has: CUDA 12.8 and newer compress with it by
// default.
std::string from_zstd(const u8* from, std::size_t bytes, std::size_t plain) {
  using Decompress = std::size_t (*)(void*, std::size_t, const void*, std::size_t);
  static void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto decompress =
      library ? reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress")) : nullptr;
  if (!decompress) {
    throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                  "the fatbin is compressed with zstd, and libzstd.so.1 is not installed: install "
                  "it (libzstd1), or compile with -Xfatbin "
                  "--compress-mode=none"};
  }
  std::string text(plain, '\0');
  if (decompress(text.data(), plain, from, bytes) != plain) damaged();
  return text;
}

std::string content(const Entry& entry) {
  const u8* payload = reinterpret_cast<const u8*>(&entry) + entry.header_bytes;
  std::string text;
  if (entry.plain_bytes > kMostBytes || entry.compressed_bytes > entry.bytes) damaged();
  if (entry.flags & kLz4)
    text = from_lz4(payload, entry.compressed_bytes, entry.plain_bytes);
  else if (entry.flags & kZstd)
    text = from_zstd(payload, entry.compressed_bytes, entry.plain_bytes);
  else
    text.assign(reinterpret_cast<const char*>(payload), entry.bytes);
  return text;
}

// Whether the entry's options for ptxas, which follow the fixed part of its header, forbid
// contraction.
bool keeps_rounding(const Entry& entry) {
  if (!entry.options_offset) return false;
  const char* header = reinterpret_cast<const char*>(&entry);
  const std::string_view options{header + sizeof entry, entry.header_bytes - sizeof entry};
  return options.find("fmad false") != options.npos || options.find("fmad=false") != options.npos;
}

std::string plain_text(const Entry& entry) {
  const std::string text = content(entry);
  const std::string told = keeps_rounding(entry) ? "\n// ptxas --fmad=false\n" : "";
  return text.substr(0, text.find('\0')) + told;
}

// The letter after the number in `.target sm_90a`: `a` runs on this architecture alone, `f` on its
// family.
char letter_of(const std::string& text) {
  const std::size_t at = text.find(".target sm_");
  if (at == std::string::npos) return 0;
  const std::size_t end = text.find_first_not_of("0123456789", at + 11);
  return end == std::string::npos ? '\0' : text[end];
}

bool runs(const std::string& text, u32 arch, u32 device) {
  const char letter = letter_of(text);
  if (letter == 'a') return arch == device;
  return arch <= device && (letter != 'f' || arch / 10 == device / 10);
}

// The program or library on disk that holds an image; empty for one that was read into memory.
std::string file_of(const char* image) {
  Dl_info found{};
  return dladdr(image, &found) && found.dli_fname ? found.dli_fname : "";
}

}  // namespace

bool unpack_fat_binary(const char* image, std::string& ptx) {
  if (!image) return false;
  u32 magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) {
    Wrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    image = &needed(wrapper.data, "the fatbin");
    std::memcpy(&magic, image, sizeof magic);
  }
  if (magic != kFatMagic) return false;
  FatHeader header{};
  std::memcpy(&header, image, sizeof header);
  const auto attribute = [](int which) { return static_cast<u32>(state().attributes.at(which)); };
  const u32 device = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                     attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  u32 best = 0;
  std::string seen;
  const Entry* code = nullptr;
  for (u64 at = header.header_bytes, end = at + header.bytes; at + sizeof(Entry) <= end;) {
    const Entry& entry = *reinterpret_cast<const Entry*>(image + at);
    if (entry.header_bytes < sizeof(Entry) || entry.header_bytes > end - at ||
        entry.bytes > end - at - entry.header_bytes)
      damaged();
    at += entry.header_bytes + entry.bytes;
    seen += (seen.empty() ? "" : ", ") +
            std::string(entry.kind == kPtx ? "PTX for sm_" : "machine code for sm_") +
            std::to_string(entry.arch);
    if (entry.kind == kMachineCode && entry.arch == device) code = &entry;
    if (entry.kind != kPtx || entry.arch < best) continue;
    std::string text = plain_text(entry);
    if (!runs(text, entry.arch, device)) continue;
    best = entry.arch;
    ptx = std::move(text);
  }
  if (best || (code && unpack_machine_code(content(*code).c_str(), ptx))) return true;
  const std::string file = file_of(image);
  const std::string where = file.empty() ? "the fatbin" : "the fatbin in " + file;
  const std::string source = file.empty() ? "" : "build that file from its source here, or ";
  throw Refused{CUDA_ERROR_NO_BINARY_FOR_GPU,
                where + " has no PTX that this device, sm_" + std::to_string(device) + ", runs (" +
                    (seen.empty() ? "it is empty" : seen) + "): " + source + kRemedy};
}

}  // namespace workbench::driver
