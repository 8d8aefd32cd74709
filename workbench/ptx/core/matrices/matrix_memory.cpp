// Matrices between memory and the fragments of a warp: ldmatrix, stmatrix, wmma.load and
// wmma.store.
#include <algorithm>

#include "matrices/tiles.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kRowBytes = 16;

// The addresses of the matrices' rows: lanes 8 * index to 8 * index + 7 give the eight rows of
// matrix `index`.
template <bool Observed>
class Rows {
 public:
  Request request;  // left empty in a bare launch whose rows are all valid
  u32 accessible;   // mask of the valid rows

  Rows(u8* registers, const Instruction& in, Warp& warp, bool is_write)
      : shared_(warp.block->shared) {
    const u32 lanes = in.elements == 4 ? kAllLanes : (1u << (8 * in.elements)) - 1;
    accessible = lanes;
    if constexpr (!Observed) {
      const u32 last = warp.block->launch->shared_bytes - kRowBytes;
      if (in.flags & kNarrowBase ? find_narrow(registers, in, last)
                                 : find_wide(registers, in, last))
        return;
    }
    resolve<Space::shared, Observed>(registers, in, lanes, warp, kRowBytes, is_write, !is_write,
                                     request);
    accessible = request.mask;
  }

  u8* operator[](u32 row) const {
    if constexpr (Observed) return request.host[row];
    return shared_ + offsets_[row];
  }

 private:
  // Finds rows that are all in shared memory. Returns false if one is outside or misaligned.
  bool find_narrow(u8* registers, const Instruction& in, u32 last) {
    const Words* from = at<const Words>(registers, in.address);
    Words outside{}, low_bits{};
    for (u32 matrix = 0; matrix < in.elements; ++matrix) {
      const Words offsets = from[matrix] + static_cast<u32>(in.offset);
      outside |= reinterpret_cast<Words>(offsets > last), low_bits |= offsets;
      std::memcpy(offsets_ + 8 * matrix, &offsets, sizeof offsets);
    }
    return !any(outside | (low_bits & (kRowBytes - 1)));
  }

  bool find_wide(u8* registers, const Instruction& in, u32 last) {
    const u64 window = in.flags & kWideBase ? kWindowMask : ~u64{0};
    const u64* from = at<const u64>(registers, in.address);
    u64 wrong = 0;
    for (u32 row = 0; row < 8 * in.elements; ++row) {
      const u64 offset = (from[row] + static_cast<u64>(in.offset)) & window;
      wrong |= (offset > last ? 1u : 0u) | (offset & (kRowBytes - 1));
      offsets_[row] = static_cast<u32>(offset);
    }
    return !wrong;
  }

  static bool any(Words words) {
#ifdef __AVX2__
    return !_mm256_testz_si256(reinterpret_cast<__m256i>(words), reinterpret_cast<__m256i>(words));
#else
    u32 found = 0;
    for (u32 i = 0; i < 8; ++i) found |= words[i];
    return found != 0;
#endif
  }

  u8* shared_;
  alignas(64) u32 offsets_[kLanes];
};

// Reads eight rows; invalid ones read as 0.
template <bool Observed>
inline void load_rows(const Rows<Observed>& rows, u32 matrix, Halves (&tile)[8]) {
  if (!Observed || (rows.accessible >> 8 * matrix & 0xff) == 0xff) {
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) std::memcpy(&tile[row], rows[8 * matrix + row], kRowBytes);
    return;
  }
  std::memset(tile, 0, sizeof tile);
  PTX_FOR_EACH_LANE (row, rows.accessible >> 8 * matrix & 0xff)
    std::memcpy(&tile[row], rows[8 * matrix + row], kRowBytes);
}

// Writes eight rows to a register.
inline void write_tile(u8* registers, Slot slot, u32 mask, const Halves (&tile)[8]) {
  if (mask == kAllLanes) {
    Halves* to = at<Halves>(registers, slot);
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) to[row] = tile[row];
    return;
  }
  alignas(64) u32 out[kLanes];
  std::memcpy(out, tile, sizeof out);
  blend(at<u32>(registers, slot), out, mask);
}

template <bool Transposed, bool Observed>
void load_matrix(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Rows<Observed> rows(registers, in, warp, false);
  for (u32 matrix = 0; matrix < in.elements; ++matrix) {
    Halves tile[8];
    load_rows(rows, matrix, tile);
    if constexpr (Transposed) transpose(tile);
    write_tile(registers, in.access.data[matrix], mask, tile);
  }
}

// ---- elements of 8 bits, and smaller ones that widen to 8. Their positions follow the CuTe
// layouts of copy_traits_sm100.hpp, which the pictures of the PTX ISA also show ----

// Spreads sixteen packed elements of `Bits` bits to the low bits of a byte each.
template <u32 Bits>
inline Halves open_row(Halves packed) {
  if constexpr (Bits == 8) return packed;
  u8 from[kRowBytes], to[kRowBytes];
  std::memcpy(from, &packed, sizeof from);
  for (u32 i = 0; i < kRowBytes; ++i) {
    u16 both;
    std::memcpy(&both, from + Bits * i / 8, sizeof both);
    to[i] = static_cast<u8>(both >> Bits * i % 8 & ((1u << Bits) - 1));
  }
  Halves opened;
  std::memcpy(&opened, to, sizeof to);
  return opened;
}

// .m8n16: a lane has four adjacent elements of a row.
template <u32 Bits, bool Observed>
void load_narrow_rows(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Rows<Observed> rows(registers, in, warp, false);
  for (u32 matrix = 0; matrix < in.elements; ++matrix) {
    Halves tile[8];
    load_rows(rows, matrix, tile);
    for (Halves& row : tile) row = open_row<Bits>(row);
    write_tile(registers, in.access.data[matrix], mask, tile);
  }
}

// .m16n16.trans: each of the sixteen rows in memory becomes a column. The first register has the
// columns' upper halves, the second the lower ones.
template <u32 Bits, bool Observed>
void load_byte_columns(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const Rows<Observed> rows(registers, in, warp, false);
  for (u32 matrix = 0; matrix < in.elements; matrix += 2) {
    u8 from[16][kRowBytes], to[2][8][kRowBytes];
    for (u32 half = 0; half < 2; ++half) {
      Halves tile[8];
      load_rows(rows, matrix + half, tile);
      for (Halves& row : tile) row = open_row<Bits>(row);
      std::memcpy(from[8 * half], tile, sizeof tile);
    }
    for (u32 row = 0; row < 16; ++row)
      for (u32 i = 0; i < kRowBytes; ++i) to[i / 8][i % 8][row] = from[row][i];
    for (u32 half = 0; half < 2; ++half) {
      Halves tile[8];
      std::memcpy(tile, to[half], sizeof tile);
      write_tile(registers, in.access.data[matrix + half], mask, tile);
    }
  }
}

template <bool Transposed, bool Observed>
void store_matrix(u8* registers, const Instruction& in, u32, Warp& warp) {
  const Rows<Observed> rows(registers, in, warp, true);
  Halves all[Observed ? 4 : 1][8] = {};
  for (u32 matrix = 0; matrix < in.elements; ++matrix) {
    const Halves* from = at<const Halves>(registers, in.access.data[matrix]);
    Halves(&tile)[8] = all[Observed ? matrix : 0];
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) tile[row] = from[row];
    if constexpr (Transposed) transpose(tile);
    if constexpr (Observed) continue;
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) std::memcpy(rows[8 * matrix + row], &tile[row], kRowBytes);
  }
  if constexpr (Observed)
    store_lanes(warp, in, rows.request, reinterpret_cast<const u8*>(all), kRowBytes);
}

// stmatrix .m16n8.trans of bytes: each column of sixteen becomes a row. Lane 4g + c holds rows g,
// then rows g + 8, of the columns 2c and 2c + 1.
template <bool Observed>
void store_byte_columns(u8* registers, const Instruction& in, u32, Warp& warp) {
  const Rows<Observed> rows(registers, in, warp, true);
  u8 all[Observed ? 4 : 1][8][kRowBytes] = {};
  for (u32 matrix = 0; matrix < in.elements; ++matrix) {
    const u8* from = registers + in.access.data[matrix];
    u8(&tile)[8][kRowBytes] = all[Observed ? matrix : 0];
    for (u32 column = 0; column < 8; ++column)
      for (u32 row = 0; row < 16; ++row)
        tile[column][row] = from[4 * (4 * (row % 8) + column / 2) + column % 2 + 2 * (row / 8)];
    if constexpr (Observed) continue;
    for (u32 row = 0; row < 8; ++row) std::memcpy(rows[8 * matrix + row], tile[row], kRowBytes);
  }
  if constexpr (Observed) store_lanes(warp, in, rows.request, all[0][0], kRowBytes);
}

// movmatrix: an 8 x 8 tile of 16-bit elements, transposed.
void transpose_matrix(u8* registers, const Instruction& in, u32 mask, Warp&) {
  Halves tile[8];
  std::memcpy(tile, registers + in.elementwise.source[0], sizeof tile);
  transpose(tile);
  alignas(64) u32 out[kLanes];
  std::memcpy(out, tile, sizeof out);
  write_lanes(registers, in.elementwise.destination, mask, out);
}

// ---- wmma: the decoder knows the positions of a fragment's elements, and passes them as numbers
// ----

// The stride is the leading dimension in elements. In part p of register r, lane 4g + c has the
// element at row g + (rows of r's set bits), column c * step + p + (columns of r's set bits), of a
// matrix whose rows are A's m, B's n, C's m. `rows` and `columns` have one byte for each bit of r;
// a bit whose row is 255 repeats the register without it. `by_row`: elements adjacent in a row are
// adjacent in memory.
struct Fragment : operands::Fragment {
  explicit Fragment(const Instruction& in) : operands::Fragment(in.fragment) {}

  u32 original(u32 r) const {
    for (u32 bit = 0; bit < 3; ++bit)
      if ((rows >> 8 * bit & 0xff) == 0xff) r &= ~(1u << bit);
    return r;
  }
  static u32 sum(u32 packed, u32 r) {
    u32 total = 0;
    for (u32 bit = 0; bit < 3; ++bit) total += (r >> bit & 1) * (packed >> 8 * bit & 0xff);
    return total;
  }
  u64 offset(u32 r, u32 part, u32 lane, u64 apart) const {
    const u64 row = lane / 4 + sum(rows, r), column = lane % 4 * step + part + sum(columns, r);
    return (by_row ? row * apart + column : column * apart + row) * bits / 8;
  }
  // Accesses of a register: one if its elements are adjacent, otherwise one for each element. Two
  // adjacent registers of an accumulator share one.
  u32 accesses() const { return by_row ? 1 : parts; }
  u32 together() const { return by_row ? step / parts : 1; }
  u32 bytes() const { return bits * parts / accesses() * together() / 8; }
};

struct Bases {
  alignas(64) u64 address[kLanes];
  alignas(64) u64 stride[kLanes];

  Bases(u8* registers, const Instruction& in, const Fragment& fragment) {
    const bool narrow = in.flags & kNarrowBase;
    for (int lane = 0; lane < kLanes; ++lane) {
      address[lane] = narrow
                          ? u64{at<u32>(registers, in.address)[lane] + static_cast<u32>(in.offset)}
                          : at<u64>(registers, in.address)[lane] + static_cast<u64>(in.offset);
      stride[lane] =
          fragment.stride == kNoSlot ? fragment.leading : at<u32>(registers, fragment.stride)[lane];
    }
  }
};

void aim(const Fragment& fragment, const Bases& bases, u32 r, u32 part, u32 mask,
         Request& request) {
  PTX_LANES {
    request.address[lane] =
        bases.address[lane] + fragment.offset(r, part, static_cast<u32>(lane), bases.stride[lane]);
  }
  if (mask == kAllLanes) return;
  const u64 first = request.address[first_lane(mask)];
  PTX_LANES {
    request.address[lane] = (mask >> lane & 1) ? request.address[lane] : first;
  }
}

// `Wide`: f64, one element of 8 bytes in each register.
template <Space S, bool Wide, bool Observed>
void load_fragment(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  using Word = std::conditional_t<Wide, u64, u32>;
  const Fragment fragment(in);
  const Bases bases(registers, in, fragment);
  const u32 each = fragment.accesses(), together = fragment.together(), bytes = fragment.bytes();
  alignas(64) Word values[8][kLanes] = {};
  for (u32 r = 0; r < in.elements; r += together) {
    if (fragment.original(r) != r) {
      std::memcpy(values[r], values[fragment.original(r)], sizeof values[r]);
      continue;
    }
    for (u32 part = 0; part < each; ++part) {
      Request request;
      aim(fragment, bases, r, part, mask, request);
      resolve_addresses<S, Observed>(in, mask, warp, bytes, false, true, request);
      PTX_FOR_EACH_LANE (lane, request.mask) {
        for (u32 i = 0; i < together; ++i) {
          const u32 size = bytes / together;
          std::memcpy(reinterpret_cast<u8*>(&values[r + i][lane]) + part * size,
                      request.host[lane] + i * size, size);
        }
      }
    }
  }
  for (u32 r = 0; r < in.elements; ++r) write_lanes(registers, fragment.data[r], mask, values[r]);
}

template <Space S, bool Wide>
void store_fragment(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  using Word = std::conditional_t<Wide, u64, u32>;
  // The lanes wait for each other here, so that each store follows the loads of all lanes.
  if (warp.block->shadow) warp.block->shadow->meet_lanes(warp.agent);
  const Fragment fragment(in);
  const Bases bases(registers, in, fragment);
  const u32 each = fragment.accesses(), together = fragment.together(), bytes = fragment.bytes();
  for (u32 r = 0; r < in.elements; r += together) {
    for (u32 part = 0; part < each; ++part) {
      Request request;
      aim(fragment, bases, r, part, mask, request);
      resolve_addresses<S>(in, mask, warp, bytes, true, false, request);
      alignas(64) u8 values[2 * sizeof(Word) * kLanes];
      PTX_FOR_EACH_LANE (lane, request.mask) {
        Word words[2];
        for (u32 i = 0; i < together; ++i)
          words[i] = at<const Word>(registers, fragment.data[r + i])[lane];
        std::memcpy(values + lane * bytes, reinterpret_cast<const u8*>(words) + part * bytes,
                    bytes);
      }
      store_lanes(warp, in, request, values, bytes);
    }
  }
}

template <Space S, bool Wide>
void add_fragments(Table& table, const std::string& tail, Class group) {
  table.push_back({"wmma.load." + tail,
                   Handlers(&load_fragment<S, Wide, false>, &load_fragment<S, Wide, true>),
                   Kind::collective, group, "fragment", "address"});
  table.push_back({"wmma.store." + tail, &store_fragment<S, Wide>, Kind::collective, group, "",
                   "address,fragment"});
}

}  // namespace

void add_matrix_memory(Table& table) {
  auto matrix = [&](const char* name, Handlers run, const char* destinations, const char* sources) {
    table.push_back({name, run, Kind::collective, Class::shared, destinations, sources});
  };
  matrix("ldmatrix", {&load_matrix<false, false>, &load_matrix<false, true>}, "vector", "address");
  matrix("ldmatrix.trans", {&load_matrix<true, false>, &load_matrix<true, true>}, "vector",
         "address");
  matrix("stmatrix", {&store_matrix<false, false>, &store_matrix<false, true>}, "",
         "address,vector");
  matrix("stmatrix.trans", {&store_matrix<true, false>, &store_matrix<true, true>}, "",
         "address,vector");
  matrix("ldmatrix.m16n16.trans.b8", {&load_byte_columns<8, false>, &load_byte_columns<8, true>},
         "vector", "address");
  matrix("ldmatrix.m16n16.trans.b6", {&load_byte_columns<6, false>, &load_byte_columns<6, true>},
         "vector", "address");
  matrix("ldmatrix.m16n16.trans.b4", {&load_byte_columns<4, false>, &load_byte_columns<4, true>},
         "vector", "address");
  matrix("ldmatrix.m8n16.b6", {&load_narrow_rows<6, false>, &load_narrow_rows<6, true>}, "vector",
         "address");
  matrix("ldmatrix.m8n16.b4", {&load_narrow_rows<4, false>, &load_narrow_rows<4, true>}, "vector",
         "address");
  matrix("stmatrix.m16n8.trans.b8", {&store_byte_columns<false>, &store_byte_columns<true>}, "",
         "address,vector");
  table.push_back(
      {"movmatrix.trans", &transpose_matrix, Kind::collective, Class::tensor, "b32", "b32"});
  add_fragments<Space::global, false>(table, "global.b32", Class::global);
  add_fragments<Space::shared, false>(table, "shared.b32", Class::shared);
  add_fragments<Space::generic, false>(table, "generic.b32", Class::global);
  add_fragments<Space::global, true>(table, "global.b64", Class::global);
  add_fragments<Space::shared, true>(table, "shared.b64", Class::shared);
  add_fragments<Space::generic, true>(table, "generic.b64", Class::global);
}

}  // namespace workbench::ptx
