// tcgen05.mma: D[M][N] = A[M][K] * B[K][N] + D, issued by one thread. D is in tensor memory, a row
// in each lane; a row of K has 32 bytes.
//
// The instruction descriptor has the details (CUTLASS, cute/arch/mma_sm100_desc.hpp). Row i of D is
// in lane i; 64 rows are in sixteen lanes of every 32; and where two blocks have 64 rows each, or
// weights are stationary, the right half of the columns is 64 lanes further (PTX ISA, "Data Path
// Layout Organization"). Sums are in f32, in the order of K.
//
// A sparse A stores 32 bytes in a row, too, and B's rows of K have 64. Metadata is in tensor memory
// (CUTLASS, mma_traits_sm100.hpp, tmem_e_frg): that of row m in two columns of lane m. For factors
// of 16 bits and more, the metadata of half a row along K is in lane m % 8 + 8 (half) + 16 (m /
// 16): the selector picks the column, and the lower 16 bits belong to even m / 8, the upper to odd.
#include <algorithm>

#include "arithmetic/numeric.hpp"
#include "codes.hpp"
#include "exact/columns.hpp"
#include "exact/handlers.hpp"
#include "exact/product.hpp"
#include "matrices/group_product.hpp"
#include "matrices/sparse.hpp"
#include "matrices/tensor_operand.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

using Flags = TensorFlags;
using wgmma::kChunk;
using wgmma::kRowBytes;

constexpr u32 kLanesOfMemory = TensorMemory::kRows;
constexpr u32 kMostRows = 128, kMostColumns = 256, kMostDepth = 128;
// Limit of the shift of B's columns, in a product with stationary weights.
constexpr u32 kMostShift = 32;

void misuse(Warp& warp, const Instruction& in, u32 lane, const std::string& text) {
  warp.block->problem(Problem::tensor_misuse, in, warp.thread(lane), 0, 0, text);
}

// ---- the instruction descriptor ----

struct InstructionDescriptor {
  u32 bits;
  TensorKind kind;

  u32 field(u32 from, u32 width) const { return bits >> from & ((1u << width) - 1); }
  bool is_scaled() const { return kind >= TensorKind::mxf8f6f4; }
  bool is_packed() const { return kind >= TensorKind::mxf4; }  // two elements in a byte
  u32 rows() const { return field(24, 5) << 4; }
  u32 columns() const { return field(17, 6) << 3; }
  u32 a() const { return field(7, 3); }
  u32 b() const { return field(10, 3); }
  bool negates_a() const { return field(13, 1); }
  bool negates_b() const { return field(14, 1); }
  bool transposes_a() const { return field(15, 1); }
  bool transposes_b() const { return field(16, 1); }
  bool is_sparse() const { return field(2, 1); }
  u32 selector() const { return field(0, 2); }
  u32 steps() const { return is_sparse() ? 2 : 1; }  // steps of 32 bytes in a row of K
  bool saturates() const { return field(3, 1); }
  u32 sums() const { return is_scaled() ? 1 : field(4, 2); }  // 0: f16, 1: f32, 2: s32
  // Byte of the word at which A's scales begin.
  u32 scale_a() const { return field(29, 2); }
  u32 scale_b() const { return field(4, 2); }
  bool scales_by_powers() const { return field(23, 1); }
  u32 element_bytes() const {
    return kind == TensorKind::f16 ? 2 : kind == TensorKind::tf32 ? 4 : 1;
  }
  u32 most_shift() const {  // limit of the shift of B's columns, with stationary weights
    static constexpr u32 shifts[] = {0, 8, 16, 32};
    return shifts[field(30, 2)];
  }
  u32 stored_depth() const { return is_packed() ? 64 : kRowBytes / element_bytes(); }
  u32 depth() const { return steps() * stored_depth(); }
  bool has_selector() const { return kind == TensorKind::f16 || kind == TensorKind::tf32; }
};

// Element types, by the kind and their number in the descriptor; kUnknown for other numbers.
enum class Element : u8 {
  f16,
  bf16,
  tf32,
  e4m3,
  e5m2,
  e2m3,
  e3m2,
  e2m1,
  packed_e2m1,
  u8_,
  s8_,
  none
};

Element element_of(TensorKind kind, u32 number) {
  static constexpr Element halves[] = {Element::f16, Element::bf16};
  static constexpr Element bytes[] = {Element::e4m3, Element::e5m2, Element::none,
                                      Element::e2m3, Element::e3m2, Element::e2m1};
  switch (kind) {
    case TensorKind::f16: return number < 2 ? halves[number] : Element::none;
    case TensorKind::tf32: return number == 2 ? Element::tf32 : Element::none;
    case TensorKind::i8: return number < 2 ? (number ? Element::s8_ : Element::u8_) : Element::none;
    case TensorKind::f8f6f4:
    case TensorKind::mxf8f6f4: return number < 6 ? bytes[number] : Element::none;
    case TensorKind::mxf4:
    case TensorKind::mxf4nvf4: return number == 1 ? Element::packed_e2m1 : Element::none;
  }
  return Element::none;
}

// The fault of a descriptor in words, or an empty text.
std::string fault_of(const InstructionDescriptor& what, u32 flags, u32 blocks) {
  const u32 m = what.rows(), n = what.columns();
  const bool stationary = flags & Flags::stationary;
  const auto shape = [&] {
    return "a product of " + std::to_string(m) + " rows and " + std::to_string(n) + " columns";
  };
  if (what.is_sparse() && !(flags & Flags::sparse))
    return "the descriptor of a sparse product for a dense one";
  if (flags & Flags::sparse) {
    if (!what.is_sparse()) return "the descriptor of a dense product for a sparse one";
    if ((blocks == 2 && m == 128) || (blocks == 1 && m == 64))
      return shape() +
             " with a sparse A, whose metadata has a layout that the machine does not "
             "know: use " +
             std::to_string(128 * blocks) + " rows";
    const u32 most = what.has_selector() ? 1 : 0;
    if (!what.is_scaled() && what.selector() > most)
      return "a sparsity selector of " + std::to_string(what.selector()) +
             (most ? ", where 0 or 1 belongs" : ", where 0 belongs");
  }
  const bool fits = blocks == 2  ? m == 128 || m == 256
                    : stationary ? m == 32 || m == 64 || m == 128
                                 : m == 64 || m == 128;
  if (!fits) return shape() + ", of which PTX has no such number of rows";
  const u32 step = stationary ? 64 : m == 256 ? 32 : m == 64 ? 8 : 16;
  if (n == 0 || n > kMostColumns || n % step)
    return shape() + ", where columns in steps of " + std::to_string(step) + " to 256 belong";
  if (stationary && n == 192) return shape() + ", where 64, 128 or 256 columns belong";
  if (element_of(what.kind, what.a()) == Element::none ||
      element_of(what.kind, what.b()) == Element::none)
    return "a type of elements that the kind of product does not have";
  const bool integer = what.kind == TensorKind::i8;
  const bool sums = integer                         ? what.sums() == 2
                    : what.kind == TensorKind::tf32 ? what.sums() == 1
                                                    : what.sums() <= 1;
  if (!sums) return "a type of sums that the kind of product does not have";
  if (integer && (what.negates_a() || what.negates_b()))
    return "negated integers, which PTX does not have";
  const auto narrow = [&](u32 number) {
    return element_of(what.kind, number) >= Element::e2m3 && !integer;
  };
  if ((what.transposes_a() && narrow(what.a())) || (what.transposes_b() && narrow(what.b())))
    return "transposed elements of less than a byte, which PTX does not have";
  return "";
}

// ---- factors, as [K][rows] in f32 ----

struct Factor {
  Element element;
  bool transposed, negated;
  u32 rows, depth, element_bytes;
  bool on_elements;       // of a ring: f32 holds their codes
  bool in_bytes = false;  // elements of four and six bits take a byte each, as in tensor memory
};

// Transposes elements that are stored along the rows at each K to elements along K for each row.
void transpose_elements(const u8* from, const Factor& factor, u8* to) {
  const u32 size = factor.element_bytes;
  for (u32 k = 0; k < kRowBytes / size; ++k)
    for (u32 row = 0; row < factor.rows; ++row)
      std::memcpy(to + row * kRowBytes + k * size, from + (k * factor.rows + row) * size, size);
}

template <class T>
void widen_factor(const u8* raw, const Factor& factor, f32* out) {
  Row* to = reinterpret_cast<Row*>(out);
  const u32 eights = factor.rows / 8;
  if constexpr (wgmma::kHalves<T>) {
    if (factor.transposed) {
      const Row sign = factor.negated ? Row{} - 1.0f : Row{} + 1.0f;
      for (u32 k = 0; k < factor.depth; ++k) {
        for (u32 eight = 0; eight < eights; ++eight) {
          Halves chunk;
          std::memcpy(&chunk, raw + (k * eights + eight) * kChunk, kChunk);
          to[k * eights + eight] = widen_eight<T>(chunk) * sign;
        }
      }
      return;
    }
  }
  for (u32 eight = 0; eight < eights; ++eight)
    wgmma::widen_rows<T, wgmma::kAscending>(raw + eight * 8 * kRowBytes, factor.negated, to + eight,
                                            eights);
}

// Elements of four and six bits. Shared memory has sixteen in a row, then a gap up to 16 bytes;
// packed elements have no gap. In tensor memory each takes a byte, with four bits in its middle
// (PTX ISA, "Packing format used for matrix A by .kind::mxf8f6f4 in Tensor Memory").
template <int ExponentBits, int MantissaBits, int Bias>
f32 decode_narrow(u32 code) {
  constexpr u32 top = 1u << (ExponentBits + MantissaBits);
  const u32 exponent = (code & (top - 1)) >> MantissaBits,
            mantissa = code & ((1u << MantissaBits) - 1);
  const f32 value = exponent ? std::ldexp(static_cast<f32>(mantissa | 1u << MantissaBits),
                                          static_cast<int>(exponent) - Bias - MantissaBits)
                             : std::ldexp(static_cast<f32>(mantissa), 1 - Bias - MantissaBits);
  return code & top ? -value : value;
}

f32 decode_narrow(Element element, u32 code) {
  switch (element) {
    case Element::e2m3: return decode_narrow<2, 3, 1>(code);
    case Element::e3m2: return decode_narrow<3, 2, 3>(code);
    default: return decode_narrow<2, 1, 1>(code);
  }
}

void widen_narrow(const u8* raw, const Factor& factor, f32* out) {
  const bool packed = factor.element == Element::packed_e2m1;
  const u32 width = packed || factor.element == Element::e2m1 ? 4 : 6, together = packed ? 32 : 16;
  f32 values[64];
  for (u32 code = 0; code < 1u << width; ++code)
    values[code] = (factor.negated ? -1.0f : 1.0f) * decode_narrow(factor.element, code);
  for (u32 row = 0; row < factor.rows; ++row) {
    for (u32 k = 0; k < factor.depth; ++k) {
      if (factor.in_bytes && !packed) {
        const u32 code = raw[row * kRowBytes + k];
        out[k * factor.rows + row] = values[(width == 4 ? code >> 2 : code) & ((1u << width) - 1)];
        continue;
      }
      const u8* chunk = raw + row * kRowBytes + k / together * kChunk;
      const u32 bit = k % together * width;
      const u32 two = chunk[bit / 8] | (bit / 8 + 1 < kChunk ? chunk[bit / 8 + 1] : 0u) << 8;
      out[k * factor.rows + row] = values[two >> bit % 8 & ((1u << width) - 1)];
    }
  }
}

// Codes of elements of a ring, by K.
template <class T>
void read_codes(const u8* raw, const Factor& factor, f32* out) {
  using Bits = typename T::Bits;
  constexpr u32 in_row = kRowBytes / u32{sizeof(Bits)};
  for (u32 row = 0; row < factor.rows; ++row)
    for (u32 k = 0; k < factor.depth; ++k) {
      const u32 place = factor.transposed ? k * factor.rows + row : row * in_row + k;
      Bits bits;
      std::memcpy(&bits, raw + place * sizeof bits, sizeof bits);
      const u16 code = T::read(bits);
      out[k * factor.rows + row] = factor.negated ? exact::negative(code) : code;
    }
}

void read_codes(const u8* raw, const Factor& factor, f32* out) {
  switch (factor.element) {
    case Element::f16: return read_codes<exact::HalfCode>(raw, factor, out);
    case Element::bf16: return read_codes<exact::BfloatCode>(raw, factor, out);
    case Element::tf32: return read_codes<exact::Single>(raw, factor, out);
    case Element::e4m3: return read_codes<exact::EightBits<E4M3>>(raw, factor, out);
    case Element::e5m2: return read_codes<exact::EightBits<E5M2>>(raw, factor, out);
    default: break;
  }
  widen_narrow(raw, factor, out);
  for (u32 i = 0; i < factor.rows * factor.depth; ++i)
    out[i] = exact::code_of(bits_as<u32>(out[i]));
}

void widen_factor(const u8* raw, Factor factor, f32* out) {
  alignas(64) u8 turned[(kMostColumns + kMostShift) * kRowBytes];
  if (factor.transposed && factor.element_bytes != 2) {
    transpose_elements(raw, factor, turned);
    raw = turned;
    factor.transposed = false;
  }
  if (factor.on_elements) return read_codes(raw, factor, out);
  switch (factor.element) {
    case Element::f16: return widen_factor<Half>(raw, factor, out);
    case Element::bf16: return widen_factor<Bfloat>(raw, factor, out);
    case Element::tf32: return widen_factor<Tf32>(raw, factor, out);
    case Element::e4m3: return widen_factor<E4M3>(raw, factor, out);
    case Element::e5m2: return widen_factor<E5M2>(raw, factor, out);
    case Element::u8_: return widen_factor<u8>(raw, factor, out);
    case Element::s8_: return widen_factor<s8>(raw, factor, out);
    default: return widen_narrow(raw, factor, out);
  }
}

f32 scale_of(u8 code, bool power) {
  if (!power) return E4M3::decode(code & 0x7f);
  return code == 0xff ? bits_as<f32>(kNaN32) : std::ldexp(1.0f, static_cast<int>(code) - 127);
}

// ---- sums ----

struct Sums {
  f32* d;  // by column (a column is kLanesOfMemory elements), then by row
  const f32 *a, *b;
  u32 rows, all_rows, all_columns, depth;  // `all_*`: distance of a (or b) from one K to the next
  bool keep;
};

// Sums of `Vectors` vectors of rows and `Columns` columns.
template <class V, u32 Vectors, u32 Columns>
[[gnu::always_inline]] inline void multiply_tile(const Sums& sums, u32 row, u32 column) {
  constexpr u32 width = sizeof(V) / sizeof(f32);
  V total[Columns][Vectors];
#pragma GCC unroll 8
  for (u32 n = 0; n < Columns; ++n)
#pragma GCC unroll 4
    for (u32 v = 0; v < Vectors; ++v) {
      if (sums.keep)
        std::memcpy(&total[n][v], sums.d + (column + n) * kLanesOfMemory + row + v * width,
                    sizeof(V));
      else
        total[n][v] = V{};
    }
  const f32 *a = sums.a + row, *b = sums.b + column;
  for (u32 k = 0; k < sums.depth; ++k, a += sums.all_rows, b += sums.all_columns) {
    V factors[Vectors];
#pragma GCC unroll 4
    for (u32 v = 0; v < Vectors; ++v) std::memcpy(&factors[v], a + v * width, sizeof(V));
#pragma GCC unroll 8
    for (u32 n = 0; n < Columns; ++n) {
      const V factor = V{} + b[n];
#pragma GCC unroll 4
      for (u32 v = 0; v < Vectors; ++v) total[n][v] += factors[v] * factor;
    }
  }
#pragma GCC unroll 8
  for (u32 n = 0; n < Columns; ++n)
#pragma GCC unroll 4
    for (u32 v = 0; v < Vectors; ++v)
      std::memcpy(sums.d + (column + n) * kLanesOfMemory + row + v * width, &total[n][v],
                  sizeof(V));
}

template <class V, u32 Vectors, u32 Columns>
[[gnu::always_inline]] inline void multiply_tiles(const Sums& sums, u32 columns) {
  constexpr u32 rows = Vectors * sizeof(V) / sizeof(f32);
  for (u32 row = 0; row < sums.rows; row += rows)
    for (u32 column = 0; column < columns; column += Columns)
      multiply_tile<V, Vectors, Columns>(sums, row, column);
}

#ifdef __AVX2__
[[gnu::target("avx512f")]] void multiply_wide(const Sums& sums, u32 columns) {
  if (sums.rows % 64)
    multiply_tiles<wgmma::Wide, 1, 8>(sums, columns);
  else
    multiply_tiles<wgmma::Wide, 4, 4>(sums, columns);
}
#endif

// `columns` is a multiple of eight, the number of rows a multiple of sixteen.
void multiply(const Sums& sums, u32 columns) {
#ifdef __AVX2__
  if (wgmma::has_wide()) return multiply_wide(sums, columns);
#endif
  multiply_tiles<Row, 2, 4>(sums, columns);
}

// ---- columns of B that count as zeros ----

// The zero-column descriptor of tcgen05.mma.ws (PTX ISA, "Zero-Column Mask Descriptor"). The
// columns are divided into parts, as many as D's lanes have groups of 32 or 64 rows; in each part,
// spans of used columns and of zero columns alternate. PTX's table exchanges the names of the two
// spans; its examples and CUTLASS (mma_sm100_desc.hpp, MaskAndShiftB) do not.
struct ZeroColumns {
  u64 bits;
  u32 part;  // columns of each part

  u32 field(u32 from, u32 width) const {
    return static_cast<u32>(bits >> from) & ((1u << width) - 1);
  }
  u32 zeros() const { return field(40, 8) + 1; }
  u32 used() const { return field(48, 8) + 1; }
  u32 shift() const { return field(56, 6); }
  u32 start(u32 number) const { return field(8 * number, 8); }
  bool begins_with_zeros(u32 number) const { return field(32 + number, 1); }
  bool is_zero(u32 column) const {
    if (!field(39, 1)) return false;
    const u32 number = column / part;
    const u32 at = (column % part + start(number)) % (zeros() + used());
    return begins_with_zeros(number) ? at < zeros() : at >= used();
  }
  // The fault of the descriptor in words, or an empty text.
  std::string fault(const InstructionDescriptor& what) const {
    if (field(36, 3) || field(62, 2))
      return "a mask of zero columns with bits that PTX reserves (36 to 38, 62 and 63)";
    const u32 most = std::min(what.most_shift(), what.rows() == 32 ? 16u : kMostShift);
    if (shift() > most)
      return "a mask that shifts B by " + std::to_string(shift()) + " columns, where at most " +
             std::to_string(most) +
             " are allowed (bits 30 and 31 of the instruction descriptor; 16 with 32 rows)";
    for (u32 number = 0; field(39, 1) && number < what.columns() / part; ++number)
      if (start(number) >= (begins_with_zeros(number) ? zeros() : used()))
        return "a mask of zero columns that starts behind its first span, of which PTX does not "
               "say what it means";
    return "";
  }
};

// ---- one product ----

// Rows of a block's part of D in consecutive lanes.
struct Band {
  u32 row, rows;        // first row in the block's part, and number of rows
  u32 column, columns;  // first column in the block's part, and number of columns
  u32 lane, first;      // first lane, and first column in tensor memory
};

class ProductTask {
 public:
  ProductTask(u8* registers, const Instruction& in, Warp& warp, u32 lane, bool on_elements)
      : registers_(registers),
        in_(in),
        warp_(warp),
        lane_(lane),
        flags_(in.tensor_product.flags),
        on_elements_(on_elements &&
                     static_cast<TensorKind>(in.tensor_product.kind) != TensorKind::i8) {}
  void run();

 private:
  u32 value(Slot slot) const { return at<const u32>(registers_, slot)[lane_]; }
  void fetch_a(Block& block, f32* out);
  void fetch_b(f32* out);
  void expand_a(Block& block, const f32* stored, f32* out);
  void fetch_masked_b(f32* out);
  TensorOperand operand_b() const {
    const bool transposed = what_.transposes_b();
    // A shift uses columns behind the others; transposed operands come in groups of eight columns.
    const u32 columns = own_columns_ + (has_mask() ? zero_columns_.shift() : 0),
              together = transposed ? std::max(8u, kChunk / what_.element_bytes()) : 1;
    return {at<const u64>(registers_, in_.tensor_product.b)[lane_], transposed,
            (columns + together - 1) / together * together, 2, what_.element_bytes()};
  }
  bool has_mask() const { return in_.tensor_product.zero_columns != kNoSlot; }
  bool check_addresses();
  void scale(Block& block, u32 address, u32 first, u32 id, u32 rows, f32* values, u32 all);
  u32 scale_parts() const {  // scales of a row
    return what_.kind == TensorKind::mxf8f6f4 ? 1 : flags_ & Flags::scales_of_16 ? 4 : 2;
  }
  std::vector<Band> bands() const;
  void count_work();
  void record();
  void accumulate(Block& block, const f32* a, const f32* b);
  template <class F>
  void with_masked_lanes(Block& block, const Band& band, F write);

  u8* registers_;
  const Instruction& in_;
  Warp& warp_;
  u32 lane_, flags_;
  bool on_elements_;  // of a ring
  InstructionDescriptor what_{};
  std::vector<Block*> blocks_;
  u32 d_ = 0, a_ = 0, metadata_ = 0;  // addresses in tensor memory
  u32 rows_ = 0, own_columns_ = 0;    // rows of A and columns of B in each block
  bool keep_ = false;
  ZeroColumns zero_columns_{};
};

bool ProductTask::check_addresses() {
  const u32 row = d_ >> 16, column = d_ & 0xffff;
  const bool half = rows_ == 64 && blocks_.size() == 1 && !(flags_ & Flags::stationary);
  if (row && !(half && row == 16)) {
    misuse(warp_, in_, lane_,
           "a result at lane " + std::to_string(row) + ", where " + (half ? "0 or 16" : "0") +
               " belongs");
    return false;
  }
  u32 columns = 0;
  for (const Band& band : bands()) columns = std::max(columns, band.first + band.columns);
  if (!is_ours(warp_, in_, column, columns)) return false;
  if (flags_ & Flags::sparse) {
    const u32 first = metadata_ & 0xffff;
    if (metadata_ >> 16 || (what_.has_selector() && first % 2)) {
      misuse(warp_, in_, lane_,
             "metadata at lane " + std::to_string(metadata_ >> 16) + " and column " +
                 std::to_string(first) + ", where lane 0" +
                 (what_.has_selector() ? " and an even column belong" : " belongs"));
      return false;
    }
    if (!is_ours(warp_, in_, first, 2)) return false;
  }
  if (!(flags_ & Flags::a_in_tensor_memory)) return true;
  if (a_ >> 16 != row) {
    misuse(warp_, in_, lane_,
           "A at lane " + std::to_string(a_ >> 16) + " and the result at lane " +
               std::to_string(row) + ", which must be the same");
    return false;
  }
  return is_ours(warp_, in_, a_ & 0xffff, kRowBytes / sizeof(u32));
}

// The lanes and columns of a block's part of D, relative to its address.
std::vector<Band> ProductTask::bands() const {
  const u32 columns = what_.columns(), lane = d_ >> 16;
  if (rows_ == kMostRows) return {{0, rows_, 0, columns, 0, 0}};
  if (blocks_.size() == 2 || flags_ & Flags::stationary) {
    std::vector<Band> bands;
    const u32 parts = kMostRows / rows_, width = columns / parts;
    for (u32 part = 0; part < parts; ++part)
      bands.push_back({0, rows_, part * width, width, part * rows_, 0});
    return bands;
  }
  std::vector<Band> bands;
  for (u32 part = 0; part < 4; ++part)
    bands.push_back({16 * part, 16, 0, columns, 32 * part + lane, 0});
  return bands;
}

void ProductTask::fetch_a(Block& block, f32* out) {
  alignas(64) u8 raw[kMostRows * kRowBytes];
  Factor factor{element_of(what_.kind, what_.a()),
                what_.transposes_a(),
                what_.negates_a(),
                rows_,
                what_.stored_depth(),
                what_.element_bytes(),
                on_elements_};
  if (flags_ & Flags::a_in_tensor_memory) {
    factor.transposed = false;
    factor.in_bytes = true;
    const u32 first = a_ & 0xffff, words = kRowBytes / sizeof(u32);
    for (const Band& band : bands()) {
      // A is stored once for each part of the columns.
      if (band.column) break;
      block.tensor->access(warp_, in_, TensorAccess::product, first, words, band.lane, band.rows,
                           true, false);
      for (u32 word = 0; word < words; ++word) {
        const u32* cells = block.tensor->column(first + word) + band.lane;
        for (u32 row = 0; row < band.rows; ++row)
          std::memcpy(raw + (band.row + row) * kRowBytes + word * sizeof(u32), cells + row,
                      sizeof(u32));
      }
    }
  } else {
    const TensorOperand operand(at<const u64>(registers_, in_.tensor_product.a)[lane_],
                                factor.transposed, rows_, 2, factor.element_bytes);
    operand.look(warp_, in_, lane_, block);
    operand.gather(block, raw);
  }
  if (!(flags_ & Flags::sparse)) return widen_factor(raw, factor, out);
  alignas(64) f32 stored[kMostDepth / 2 * kMostRows];
  widen_factor(raw, factor, stored);
  expand_a(block, stored, out);
}

// Fills the zeros into A, by K, from its stored elements.
void ProductTask::expand_a(Block& block, const f32* stored, f32* out) {
  using sparse::Allowed;
  const bool is_tf32 = what_.kind == TensorKind::tf32, halves = what_.has_selector();
  const Allowed allowed = is_tf32 ? Allowed::one_of_two : Allowed::tensor;
  // Stored elements of four bits of metadata.
  const u32 together = is_tf32 ? 1 : what_.is_packed() ? 4 : 2;
  // Of one step.
  const u32 count = what_.stored_depth() / 2, depth = what_.depth() / 2;
  const u32 first = (metadata_ & 0xffff) + (halves ? what_.selector() : 0);
  block.tensor->access(warp_, in_, TensorAccess::product, first, halves ? 1 : 2, 0, kLanesOfMemory,
                       true, false);
  std::fill_n(out, 2 * depth * rows_, 0.0f);
  for (u32 row = 0; row < rows_; ++row) {
    for (u32 step = 0; step < 2; ++step) {
      const u32 lane = halves ? row % 8 + 8 * step + row / 16 * 16 : row;
      const u32 column = halves ? first : first + step, begin = halves ? row / 8 % 2 * 16 : 0;
      const u32 mine = block.tensor->column(column)[lane] >> begin;
      const f32* values = stored + step * count * rows_ + row;
      const auto is_zero = [&](u32 chunk) {
        for (u32 number = chunk * together; number < (chunk + 1) * together; ++number)
          if (values[number * rows_] != 0) return false;
        return true;
      };
      sparse::check(warp_, in_, lane_, mine, begin, halves ? 4 : 8, allowed, is_zero, [&] {
        return "the metadata in lane " + std::to_string(lane) + ", column " +
               std::to_string(column) + " of tensor memory";
      });
      for (u32 number = 0; number < count; ++number) {
        const u32 four = mine >> 4 * (number / together) & 15;
        const u32 place =
            is_tf32 ? 2 * number + (four >> 3) : sparse::place_of(number, four, what_.is_packed());
        out[(step * depth + place) * rows_ + row] = values[number * rows_];
      }
    }
  }
}

void ProductTask::fetch_masked_b(f32* out) {
  constexpr u32 most = kMostColumns + kMostShift;
  alignas(64) u8 raw[most * kRowBytes] = {};
  alignas(64) f32 all[kMostDepth / 2 * most];
  const TensorOperand operand = operand_b();
  operand.look(warp_, in_, lane_, *blocks_[0]);
  operand.gather(*blocks_[0], raw);
  const u32 rows = (operand.rows + 7) / 8 * 8, columns = what_.columns();
  widen_factor(raw,
               Factor{element_of(what_.kind, what_.b()), operand.transposed, what_.negates_b(),
                      rows, what_.depth(), what_.element_bytes(), on_elements_},
               all);
  for (u32 k = 0; k < what_.depth(); ++k)
    for (u32 column = 0; column < columns; ++column)
      out[k * columns + column] =
          zero_columns_.is_zero(column) ? 0.0f : all[k * rows + column + zero_columns_.shift()];
}

void ProductTask::fetch_b(f32* out) {
  if (has_mask()) return fetch_masked_b(out);
  alignas(64) u8 raw[kMostColumns * kRowBytes];
  alignas(64) f32 own[kMostDepth / 2 * kMostColumns];
  const Factor factor{element_of(what_.kind, what_.b()),
                      what_.transposes_b(),
                      what_.negates_b(),
                      own_columns_,
                      what_.stored_depth(),
                      what_.element_bytes(),
                      on_elements_};
  const u32 all = what_.columns();
  for (std::size_t part = 0; part < blocks_.size(); ++part) {
    TensorOperand operand = operand_b();
    for (u32 step = 0; step < what_.steps(); ++step) {
      f32* to = out + step * factor.depth * all;
      operand.look(warp_, in_, lane_, *blocks_[part]);
      operand.gather(*blocks_[part], raw);
      operand.advance();
      if (blocks_.size() == 1) {
        widen_factor(raw, factor, to);
        continue;
      }
      widen_factor(raw, factor, own);
      for (u32 k = 0; k < factor.depth; ++k)
        std::memcpy(to + k * all + part * own_columns_, own + k * own_columns_,
                    own_columns_ * sizeof(f32));
    }
  }
}

// Scales are stored by 32 rows: lane = row % 32, column = row / 32; the bytes of a column are those
// of parts of K (CUTLASS, mma_traits_sm100.hpp, tmem_sf_frg).
void ProductTask::scale(Block& block, u32 address, u32 first, u32 id, u32 rows, f32* values,
                        u32 all) {
  const u32 parts = scale_parts();
  const u32 per_part = what_.depth() / parts, column = address & 0xffff;
  block.tensor->access(warp_, in_, TensorAccess::product, column, (rows + 31) / 32, 0, kLanes, true,
                       false);
  for (u32 row = 0; row < rows; ++row) {
    const u32 word = block.tensor->column(column + row / 32)[row % 32];
    for (u32 part = 0; part < parts; ++part) {
      const f32 scale =
          scale_of(static_cast<u8>(word >> 8 * ((id + part) & 3)), what_.scales_by_powers());
      const u16 code = on_elements_ ? exact::code_of(bits_as<u32>(scale)) : u16{0};
      for (u32 k = part * per_part; k < (part + 1) * per_part; ++k) {
        f32& value = values[k * all + first + row];
        value = on_elements_ ? exact::product(static_cast<u16>(value), code) : value * scale;
      }
    }
  }
}

// Calls `write`, which changes a band, then restores the lanes that must stay unchanged.
template <class F>
void ProductTask::with_masked_lanes(Block& block, const Band& band, F write) {
  if (!(flags_ & Flags::masked)) return write();
  const std::vector<u32>& masks = block.kernel->fragments[static_cast<std::size_t>(in_.target)];
  const u32 base = blocks_.size() == 2 && &block == blocks_[1] ? 4 : 0;
  const u32 first = (d_ & 0xffff) + band.first;
  std::vector<u32> before;
  for (u32 column = 0; column < band.columns; ++column) {
    const u32* cells = block.tensor->column(first + column) + band.lane;
    before.insert(before.end(), cells, cells + band.rows);
  }
  write();
  for (u32 column = 0; column < band.columns; ++column) {
    u32* cells = block.tensor->column(first + column) + band.lane;
    for (u32 row = 0; row < band.rows; ++row) {
      const u32 lane = band.lane + row;
      if (value(masks[base + lane / 32]) >> lane % 32 & 1)
        cells[row] = before[column * band.rows + row];
    }
  }
}

// Counts the work of a product: multiply-adds (for a sparse A those of stored elements), scale
// factors (each block reads all of B's), and the passes that read its factors from shared memory,
// 128 bytes each and without conflicts, as for wgmma.
void ProductTask::count_work() {
  constexpr u32 pass = 128;
  const Block& block = *warp_.block;
  if (!block.counts) return;
  Counts& counts = block.counts[block.pc_of(in_)];
  const u32 rows = what_.rows(), columns = what_.columns();
  counts.products += u64{rows} * columns * what_.stored_depth();
  if (what_.is_scaled())
    counts.scale_bytes += u64{scale_parts()} * (rows + blocks_.size() * columns);
  const u32 rows_of_a = flags_ & Flags::a_in_tensor_memory ? 0 : rows;
  const u64 passes = u64{rows_of_a + what_.steps() * columns} * kRowBytes / pass;
  counts.wavefronts += passes;
  counts.ideal += passes;
}

void ProductTask::record() {
  Block& block = *warp_.block;
  if (!block.recorder) return;
  const auto start_of = [&](Slot descriptor) {
    return wgmma::Descriptor(at<const u64>(registers_, descriptor)[lane_]).start;
  };
  const operands::TensorProduct& product = in_.tensor_product;
  block.recorder->event({.warp = warp_.index,
                         .pc = block.pc_of(in_),
                         .kind = RecordedEvent::multiply,
                         .at = d_ & 0xffff,
                         .phase = 0,
                         .count = what_.columns(),
                         .bytes = flags_ & Flags::a_in_tensor_memory ? RecordedEvent::kInRegisters
                                                                     : start_of(product.a),
                         .to = start_of(product.b),
                         .tick = warp_.now});
}

void ProductTask::accumulate(Block& block, const f32* a, const f32* b) {
  alignas(64) f32 sums[kMostColumns * kLanesOfMemory];
  const u32 kind = what_.sums(), shift = in_.tensor_product.shift;
  for (const Band& band : bands()) {
    const u32 first = (d_ & 0xffff) + band.first;
    block.tensor->access(warp_, in_, TensorAccess::product, first, band.columns, band.lane,
                         band.rows, keep_, true);
    u32* cells = block.tensor->column(first) + band.lane;
    const auto each = [&](auto change) {
      for (u32 column = 0; column < band.columns; ++column)
        for (u32 row = 0; row < band.rows; ++row)
          change(cells[column * kLanesOfMemory + row], sums[column * kLanesOfMemory + row]);
    };
    with_masked_lanes(block, band, [&] {
      if (on_elements_) {
        const exact::ColumnFactor left{a + band.row, band.rows, rows_},
            right{b + band.column, band.columns, what_.columns()};
        const auto multiply = kind == 0 ? &exact::multiply_columns<exact::HalfCode>
                                        : &exact::multiply_columns<exact::Single>;
        return multiply(cells, kLanesOfMemory, left, right, what_.depth(), keep_, shift);
      }
      const bool in_place = kind == 1 && !shift;
      Sums task{in_place ? reinterpret_cast<f32*>(cells) : sums,
                a + band.row,
                b + band.column,
                band.rows,
                rows_,
                what_.columns(),
                what_.depth(),
                keep_ && kind != 2};
      if (in_place) return multiply(task, band.columns);
      const f32 factor = std::ldexp(1.0f, -static_cast<int>(shift));
      if (task.keep)
        each([&](u32 cell, f32& sum) {
          const f32 before = kind == 0 ? to_f32(Half{static_cast<u16>(cell)}) : bits_as<f32>(cell);
          sum = before * factor;
        });
      multiply(task, band.columns);
      if (kind == 1)
        each([](u32& cell, f32 sum) { cell = bits_as<u32>(sum); });
      else if (kind == 0)
        each([](u32& cell, f32 sum) { cell = to_half(sum).bits; });
      else
        each([&](u32& cell, f32 sum) {
          const s64 total = s64{keep_ ? static_cast<s32>(cell) : 0} + static_cast<s64>(sum);
          cell = static_cast<u32>(what_.saturates() ? std::clamp<s64>(total, INT32_MIN, INT32_MAX)
                                                    : total);
        });
    });
  }
}

void ProductTask::run() {
  const operands::TensorProduct& product = in_.tensor_product;
  what_ = {value(product.descriptor), static_cast<TensorKind>(product.kind)};
  blocks_ = blocks_of(warp_, in_, lane_, flags_ & Flags::two_blocks);
  if (blocks_.empty()) return;
  const u32 count = static_cast<u32>(blocks_.size());
  if (const std::string fault = fault_of(what_, flags_, count); !fault.empty())
    return misuse(warp_, in_, lane_, fault);
  rows_ = what_.rows() / count;
  own_columns_ = what_.columns() / count;
  d_ = value(in_.address) + static_cast<u32>(in_.offset);
  if (flags_ & Flags::a_in_tensor_memory) a_ = value(product.a) + product.a_offset;
  if (flags_ & Flags::sparse) metadata_ = value(product.metadata) + product.metadata_offset;
  keep_ = *at<const u32>(registers_, product.keeps_d) >> lane_ & 1;
  if (!check_addresses()) return;
  if (has_mask()) {
    zero_columns_ = {at<const u64>(registers_, product.zero_columns)[lane_],
                     what_.columns() * what_.rows() / kMostRows};
    if (const std::string fault = zero_columns_.fault(what_); !fault.empty())
      return misuse(warp_, in_, lane_, fault);
  }
  const u32 size = what_.element_bytes();
  for (Block* block : blocks_) {
    if (!(flags_ & Flags::a_in_tensor_memory) &&
        !TensorOperand(at<const u64>(registers_, product.a)[lane_], what_.transposes_a(), rows_, 2,
                       size)
             .check(warp_, in_, lane_, *block))
      return;
    TensorOperand b = operand_b();
    if (what_.is_sparse() && !b.transposed && b.from.width() == 2)
      return misuse(warp_, in_, lane_,
                    "a matrix descriptor of B with a swizzle of 32 bytes, where a row of K has 64: "
                    "use one of 64 or 128 bytes, or none");
    for (u32 step = 0; step < what_.steps(); ++step) {
      if (!b.check(warp_, in_, lane_, *block)) return;
      b.advance();
    }
  }
  record();
  alignas(64) f32 a[kMostDepth * kMostRows];
  alignas(64) f32 b[kMostDepth * kMostColumns];
  if (!what_.is_scaled()) fetch_b(b);
  for (Block* block : blocks_) {
    fetch_a(*block, a);
    if (what_.is_scaled()) {
      const u32 scales_a = value(product.scale_a) + product.scale_a_offset,
                scales_b = value(product.scale_b) + product.scale_b_offset;
      if (!is_ours(warp_, in_, scales_a & 0xffff, (rows_ + 31) / 32) ||
          !is_ours(warp_, in_, scales_b & 0xffff, (what_.columns() + 31) / 32))
        return;
      fetch_b(b);
      scale(*block, scales_a, 0, what_.scale_a(), rows_, a, rows_);
      scale(*block, scales_b, 0, what_.scale_b(), what_.columns(), b, what_.columns());
    }
    accumulate(*block, a, b);
  }
  count_work();
}

template <bool OnElements>
void multiply_all(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  PTX_FOR_EACH_LANE (lane, mask) ProductTask(registers, in, warp, lane, OnElements).run();
}

}  // namespace

void add_tensor_products(Table& table) {
  table.push_back({"tcgen05.mma", &multiply_all<false>, Kind::timed, Class::tensor, "",
                   "b32,b64,b64,b32,pred"});
  table.push_back({"tcgen05.mma.sp", &multiply_all<false>, Kind::timed, Class::tensor, "",
                   "b32,b64,b64,b32,b32,pred"});
}

std::optional<Handlers> exact::tensor_product(const std::string& name) {
  if (name != "tcgen05.mma" && name != "tcgen05.mma.sp") return std::nullopt;
  return Handlers(&multiply_all<true>);
}

}  // namespace workbench::ptx
