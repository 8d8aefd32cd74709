// wgmma: products of matrices in shared memory by four warps, D[64][N] = A[64][K] * B[K][N] + D,
// where a row of K has 32 bytes.
//
// `elements` is N / 8, `target` the list of D's registers. Each warp computes its sixteen rows when
// it gets there, which is as early as the hardware may; what the operands' memory holds later is a
// matter of checks. A group is over when all four warps have issued it.
#include <algorithm>
#include <vector>

#include "access.hpp"
#include "codes.hpp"
#include "processor.hpp"
#include "tensor_map.hpp"
#include "tiles.hpp"

namespace workbench::ptx {
namespace {

using Product = WarpGroupProduct;
constexpr u32 kRowBytes = 32, kChunk = 16;  // of a row of K; of what lies together in shared memory
constexpr u32 kMostColumns = 256;
constexpr u32 kSwizzleBytes =
    1024;  // after which every swizzle repeats itself, and within which it stays
constexpr u64 kGroupKey = u64{1} << 41;  // of a group's clocks, where no flag lies

void misuse(Warp& warp, const Instruction& in, const std::string& text) {
  warp.block->problem(Problem::bulk_misuse, in, warp.thread(0), 0, 0, text);
}

// A matrix descriptor: where the 16-byte chunks of an operand lie.
struct Descriptor {
  u32 start, leading, stride, mode, base;

  explicit Descriptor(u64 bits)
      : start(field(bits, 0)),
        leading(field(bits, 16)),
        stride(field(bits, 32)),
        mode(static_cast<u32>(bits >> 62)),
        base(static_cast<u32>(bits >> 49 & 7)) {}
  static u32 field(u64 bits, u32 from) { return static_cast<u32>(bits >> from & 0x3fff) << 4; }

  u32 width() const {  // chunks of an atom's row
    static constexpr u32 widths[] = {1, 8, 4, 2};
    return widths[mode];
  }
  u32 swizzle() const { return width() - 1; }
  u32 placed(u32 offset) const { return swizzled(start + offset, swizzle()); }
  // Chunk `chunk` of the two that row `row` of M or N has along K.
  u32 along_k(u32 row, u32 chunk) const {
    return placed(row / 8 * stride + row % 8 * 16 * width() + chunk * (mode ? 16 : leading));
  }
  // The chunk of eight 16-bit elements along M or N, from 8 * `eight` on, at `k`.
  u32 along_rows(u32 eight, u32 k) const {
    if (mode == 0) return placed(eight * stride + k % 8 * 16 + k / 8 * leading);
    return placed(eight % width() * 16 + eight / width() * leading + k % 8 * 16 * width() +
                  k / 8 * stride);
  }
};

struct Operand {
  Descriptor from;
  bool transposed;
  u32 first, rows;  // of M or N

  u32 chunks() const { return rows * kRowBytes / kChunk; }
  u32 offset(u32 chunk) const {
    return transposed ? from.along_rows(first / 8 + chunk % (rows / 8), chunk / (rows / 8))
                      : from.along_k(first + chunk / 2, chunk % 2);
  }
};

// Whether all of an operand surely lies inside shared memory, in a layout that for_each_chunk
// knows, which is nearly always so.
bool is_regular(const Operand& operand, u32 shared_bytes) {
  const Descriptor& from = operand.from;
  const u64 eights = operand.first / 8 + operand.rows / 8;
  if (!operand.transposed)
    return from.start + eights * from.stride + from.leading + 2 * kSwizzleBytes < shared_bytes;
  return from.mode && from.leading % kSwizzleBytes == 0 &&
         from.start + eights / from.width() * from.leading + from.stride + 2 * kSwizzleBytes <
             shared_bytes;
}

// Calls visit(which, chunk) for the chunks of a regular operand in the order of Operand::offset.
template <class F>
inline void for_each_row(const Operand& operand, const u8* shared, F visit) {
  const Descriptor from = operand.from;
  const u32 swizzle = from.swizzle(), pitch = 16 * from.width(),
            further = from.mode ? kChunk : from.leading;
  u32 places[8][2];
  for (u32 eight = 0; eight < operand.rows / 8; ++eight) {
    const u32 first = operand.first / 8 + eight;
    if (eight == 0 || from.stride % kSwizzleBytes) {
      for (u32 row = 0; row < 8; ++row) {
        const u32 address = from.start + first * from.stride + row * pitch;
        places[row][0] = swizzled(address, swizzle),
        places[row][1] = swizzled(address + further, swizzle);
      }
    }
    const u8* at = shared + (from.stride % kSwizzleBytes ? 0 : eight * from.stride);
#pragma GCC unroll 8
    for (u32 row = 0; row < 8; ++row) {
      visit(16 * eight + 2 * row, at + places[row][0]);
      visit(16 * eight + 2 * row + 1, at + places[row][1]);
    }
  }
}

template <class F>
inline void for_each_column(const Operand& operand, const u8* shared, F visit) {
  const Descriptor from = operand.from;
  const u32 width = from.width(), eights = operand.rows / 8, first = operand.first / 8;
  for (u32 k = 0; k < operand.chunks() / eights; ++k) {
    u32 places[8];  // of the chunks of an atom's row, after which they repeat
    for (u32 i = 0; i < width; ++i) places[i] = from.along_rows(i, k);
    for (u32 i = 0; i < eights; ++i)
      visit(k * eights + i,
            shared + places[(first + i) % width] + (first + i) / width * from.leading);
  }
}

template <class F>
inline void for_each_chunk(const Operand& operand, const u8* shared, F visit) {
  if (operand.transposed)
    for_each_column(operand, shared, visit);
  else
    for_each_row(operand, shared, visit);
}

void gather_regular(const Operand& operand, const u8* shared, u8* out) {
  for_each_chunk(operand, shared, [&](u32 which, const u8* chunk) {
    std::memcpy(out + which * kChunk, chunk, kChunk);
  });
}

// Whether a regular operand is what was gathered before.
bool is_unchanged(const Operand& operand, const u8* shared, const u8* gathered) {
  Halves differing = {};
  for_each_chunk(operand, shared, [&](u32 which, const u8* chunk) {
    Halves now, before;
    std::memcpy(&now, chunk, kChunk), std::memcpy(&before, gathered + which * kChunk, kChunk);
    differing |= now ^ before;
  });
  constexpr u8 none[kChunk] = {};
  return std::memcmp(&differing, none, kChunk) == 0;
}

// Copies an operand's chunks to `out`: by rows of 32 bytes, or, transposed, K by K.
bool gather(Warp& warp, const Instruction& in, const Operand& operand, u8* out) {
  const u32 size = warp.block->launch->shared_bytes;
  if (is_regular(operand, size)) {
    gather_regular(operand, warp.block->shared, out);
    return true;
  }
  for (u32 chunk = 0; chunk < operand.chunks(); ++chunk) {
    const u32 offset = operand.offset(chunk);
    if (offset + kChunk > size) {
      warp.block->problem(Problem::shared_out_of_bounds, in, warp.thread(0), offset, kChunk);
      return false;
    }
    std::memcpy(out + chunk * kChunk, warp.block->shared + offset, kChunk);
  }
  return true;
}

// ---- factors, widened to f32 ----

struct Tf32 {
  u32 bits;
};
template <class T>
constexpr u32 kFactorBytes = std::is_same_v<T, Tf32>                                ? 4
                             : std::is_same_v<T, Half> || std::is_same_v<T, Bfloat> ? 2
                                                                                    : 1;
template <class T>
constexpr u32 kDepth = kRowBytes / kFactorBytes<T>;
template <class T>
constexpr bool kHalves = kFactorBytes<T> == 2;

inline f32 factor_at(const u8* from) {  // of TF32, whose low 13 bits are not seen
  u32 bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits_as<f32>(bits & kTf32Bits);
}

// The order of eight columns here: those of a lane's even registers, then those of the odd ones.
constexpr u32 kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

// to[k * stride] has the factors of eight rows of K, in that order. A row of `from` has 32 bytes.
template <class T>
void widen_rows(const u8* from, bool negated, Row* to, u32 stride) {
  const Row sign = negated ? Row{} - 1.0f : Row{} + 1.0f;
  if constexpr (!std::is_same_v<T, Tf32>) {
    Halves eights[8][2 * kParts<T>], tile[8];
    for (u32 i = 0; i < 8; ++i) Factors<T>::spread(from + kOrder[i] * kRowBytes, eights[i]);
    for (u32 part = 0; part < 2 * kParts<T>; ++part) {
      for (u32 i = 0; i < 8; ++i) tile[i] = eights[i][part];
      transpose(tile);
      for (u32 i = 0; i < 8; ++i) to[(8 * part + i) * stride] = Factors<T>::values(tile[i]) * sign;
    }
  } else {
    for (u32 k = 0; k < kDepth<T>; ++k) {
      Row row;
      for (u32 i = 0; i < 8; ++i)
        row[i] = factor_at(from + kOrder[i] * kRowBytes + k * kFactorBytes<T>);
      to[k * stride] = row * sign;
    }
  }
}

// The same of a chunk of eight rows at each K, `pitch` bytes apart.
template <class T>
void widen_columns(const u8* from, u32 pitch, bool negated, Row* to, u32 stride) {
  const Row sign = negated ? Row{} - 1.0f : Row{} + 1.0f;
  for (u32 k = 0; k < kDepth<T>; ++k) {
    Halves chunk;
    std::memcpy(&chunk, from + k * pitch, kChunk);
    to[k * stride] =
        widen_eight<T>(__builtin_shufflevector(chunk, chunk, 0, 2, 4, 6, 1, 3, 5, 7)) * sign;
  }
}

// B as [k][column / 8], kept from one warp to the next: the four of a group multiply by the same.
struct Kept {
  std::vector<u8> raw;
  std::vector<Row> values;
  const Instruction* in = nullptr;
};

}  // namespace

struct KeptFactors {
  Kept entries[8];
};

namespace {

// `gathered`: B's chunks, or null where B is regular.
template <class T>
const Row* widen_b(Warp& warp, const Instruction& in, const Operand& b, const u8* gathered) {
  std::shared_ptr<KeptFactors>& kept = warp.block->worker->factors;
  if (!kept) kept = std::make_shared<KeptFactors>();
  Kept& entry = kept->entries[reinterpret_cast<std::uintptr_t>(&in) / sizeof in % 8];
  const u32 bytes = b.rows * kRowBytes, eights = b.rows / 8, flags = in.group_product.flags;
  const u8* shared = warp.block->shared;
  if (entry.in == &in && entry.raw.size() == bytes &&
      (gathered ? std::memcmp(entry.raw.data(), gathered, bytes) == 0
                : is_unchanged(b, shared, entry.raw.data())))
    return entry.values.data();
  entry.in = &in, entry.raw.resize(bytes), entry.values.resize(std::size_t{kDepth<T>} * eights);
  u8* raw = entry.raw.data();
  if (gathered)
    std::memcpy(raw, gathered, bytes);
  else
    gather_regular(b, shared, raw);
  for (u32 eight = 0; eight < eights; ++eight) {
    Row* to = entry.values.data() + eight;
    if constexpr (kHalves<T>) {
      if (flags & Product::transpose_b) {
        widen_columns<T>(raw + eight * kChunk, eights * kChunk, flags & Product::negate_b, to,
                         eights);
        continue;
      }
    }
    widen_rows<T>(raw + eight * 8 * kRowBytes, flags & Product::negate_b, to, eights);
  }
  return entry.values.data();
}

// A as [half][k][pair of rows]: of rows 2p and 2p + 1 of a half, each value four times.
template <class T>
void widen_a(const u8* raw, u32 flags, Row (*out)[kDepth<T>][4]) {
  alignas(64) Row rows[kDepth<T>];
  for (u32 half = 0; half < 2; ++half) {
    bool done = false;
    if constexpr (kHalves<T>) {
      if (flags & Product::transpose_a)
        widen_columns<T>(raw + half * kChunk, 2 * kChunk, flags & Product::negate_a, rows, 1),
            done = true;
    }
    if (!done) widen_rows<T>(raw + half * 8 * kRowBytes, flags & Product::negate_a, rows, 1);
    for (u32 k = 0; k < kDepth<T>; ++k) {
      const Row r = rows[k];  // rows 0 2 4 6 1 3 5 7
      out[half][k][0] = __builtin_shufflevector(r, r, 0, 0, 0, 0, 4, 4, 4, 4);
      out[half][k][1] = __builtin_shufflevector(r, r, 1, 1, 1, 1, 5, 5, 5, 5);
      out[half][k][2] = __builtin_shufflevector(r, r, 2, 2, 2, 2, 6, 6, 6, 6);
      out[half][k][3] = __builtin_shufflevector(r, r, 3, 3, 3, 3, 7, 7, 7, 7);
    }
  }
}

// Eight columns of eight rows: `even` has columns 0, 2, 4, 6 of rows 2p and 2p + 1 at p, as a
// register has them. The sums may take the place of what they are added to.
template <u32 Depth>
inline void multiply(const Row (*a)[4], const Row* b, u32 eights, const Row* even, const Row* odd,
                     Row* even_sums, Row* odd_sums) {
  Row e0 = even[0], e1 = even[1], e2 = even[2], e3 = even[3], o0 = odd[0], o1 = odd[1], o2 = odd[2],
      o3 = odd[3];
#pragma GCC unroll 2
  for (u32 k = 0; k < Depth; ++k) {
    const Row both = b[k * eights];
    const Row low = __builtin_shufflevector(both, both, 0, 1, 2, 3, 0, 1, 2, 3);
    const Row high = __builtin_shufflevector(both, both, 4, 5, 6, 7, 4, 5, 6, 7);
    const Row* rows = a[k];
    e0 += rows[0] * low, e1 += rows[1] * low, e2 += rows[2] * low, e3 += rows[3] * low;
    o0 += rows[0] * high, o1 += rows[1] * high, o2 += rows[2] * high, o3 += rows[3] * high;
  }
  even_sums[0] = e0, even_sums[1] = e1, even_sums[2] = e2, even_sums[3] = e3;
  odd_sums[0] = o0, odd_sums[1] = o1, odd_sums[2] = o2, odd_sums[3] = o3;
}

bool has_wide() {
  static const bool wide = supports_512();
  return wide;
}

#ifdef __AVX2__
typedef f32 Wide __attribute__((vector_size(64)));

// The same for both halves of the rows and `Count` times eight columns, by vectors of sixteen: each
// time eight of `from` and `to`.
template <u32 Depth, u32 Count>
[[gnu::target("avx512f")]] void multiply_wide(const Row (*a)[Depth][4], const Row* b, u32 eights,
                                              const Row* const* from, Row* const* to) {
  Wide sums[Count][8], columns[Count][2];
#pragma GCC unroll 2
  for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 8
    for (u32 i = 0; i < 8; ++i)
      std::memcpy(&sums[n][i], from[4 * n + i / 2] + 2 * (i % 2), sizeof(Wide));
  for (u32 k = 0; k < Depth; ++k, b += eights) {
#pragma GCC unroll 2
    for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 2
      for (u32 odd = 0; odd < 2; ++odd) {
        const __m128 four = _mm_load_ps(reinterpret_cast<const f32*>(b + n) + 4 * odd);
        columns[n][odd] = reinterpret_cast<Wide>(_mm512_broadcast_f32x4(four));
      }
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; ++i) {
      Wide rows;
      std::memcpy(&rows, a[i / 2][k] + 2 * (i % 2), sizeof rows);
      asm("" : "+v"(rows));  // loaded once, for even and odd columns
#pragma GCC unroll 2
      for (u32 n = 0; n < Count; ++n)
        sums[n][4 * (i / 2) + i % 2] += rows * columns[n][0],
            sums[n][4 * (i / 2) + 2 + i % 2] += rows * columns[n][1];
    }
  }
#pragma GCC unroll 2
  for (u32 n = 0; n < Count; ++n)
#pragma GCC unroll 8
    for (u32 i = 0; i < 8; ++i)
      std::memcpy(to[4 * n + i / 2] + 2 * (i % 2), &sums[n][i], sizeof(Wide));
}
#endif

template <u32 Depth>
void multiply_halves(const Row (*a)[Depth][4], const Row* b, u32 eights, const Row* const* from,
                     Row* const* to) {
#ifdef __AVX2__
  if (has_wide()) return multiply_wide<Depth, 1>(a, b, eights, from, to);
#endif
  for (u32 half = 0; half < 2; ++half)
    multiply<Depth>(a[half], b, eights, from[2 * half], from[2 * half + 1], to[2 * half],
                    to[2 * half + 1]);
}

alignas(64) constexpr Row kNothing[4] = {};

// All of D where its registers hold f32 and every lane is there, by sixteen columns. Returns how
// many eights are done.
template <u32 Depth>
u32 accumulate_pairs([[maybe_unused]] u8* registers, [[maybe_unused]] const Instruction& in,
                     [[maybe_unused]] const std::vector<u32>& d, [[maybe_unused]] bool keep,
                     [[maybe_unused]] const Row (*a)[Depth][4], [[maybe_unused]] const Row* b) {
  u32 column = 0;
#ifdef __AVX2__
  for (; has_wide() && column + 2 <= in.elements; column += 2) {
    const Row* from[8];
    Row* to[8];
    for (u32 part = 0; part < 8; ++part) {
      to[part] = at<Row>(registers, d[4 * column + part]);
      from[part] = keep ? to[part] : kNothing;
    }
    multiply_wide<Depth, 2>(a, b + column, in.elements, from, to);
  }
#endif
  return column;
}

struct Saturating {};
struct Wrapping {};

// Eight columns of D. What the sums are kept in, by how its registers hold them.
template <class Sum, u32 Depth>
void accumulate(u8* registers, const Instruction& in, u32 mask, const std::vector<u32>& d,
                u32 column, bool keep, const Row (*a)[Depth][4], const Row* b) {
  alignas(64)
      Row sums[4][4];  // even and odd columns of one half of the rows, then those of the other
  const Row* from[4] = {kNothing, kNothing, kNothing, kNothing};
  Row* to[4] = {sums[0], sums[1], sums[2], sums[3]};
  if constexpr (std::is_same_v<Sum, f32>) {
    const u32* slots = d.data() + 4 * column;
    for (u32 part = 0; part < 4; ++part) {
      Row* place = at<Row>(registers, slots[part]);
      if (keep) from[part] = place;
      if (mask == kAllLanes) to[part] = place;
    }
    multiply_halves<Depth>(a, b + column, in.elements, from, to);
    if (mask == kAllLanes) return;
    for (u32 part = 0; part < 4; ++part)
      blend(at<f32>(registers, slots[part]), reinterpret_cast<const f32*>(sums[part]), mask);
  } else if constexpr (std::is_same_v<Sum, Half>) {
    alignas(64) Half packed[2 * kLanes];
    for (u32 half = 0; keep && half < 2; ++half) {
      std::memcpy(packed, registers + d[2 * column + half], sizeof packed);
      f32 *evens = reinterpret_cast<f32*>(sums[2 * half]),
          *odds = reinterpret_cast<f32*>(sums[2 * half + 1]);
      for (int lane = 0; lane < kLanes; ++lane)
        evens[lane] = to_f32(packed[2 * lane]), odds[lane] = to_f32(packed[2 * lane + 1]);
      from[2 * half] = sums[2 * half], from[2 * half + 1] = sums[2 * half + 1];
    }
    multiply_halves<Depth>(a, b + column, in.elements, from, to);
    for (u32 half = 0; half < 2; ++half) {
      const f32 *evens = reinterpret_cast<const f32*>(sums[2 * half]),
                *odds = reinterpret_cast<const f32*>(sums[2 * half + 1]);
      for (int lane = 0; lane < kLanes; ++lane)
        packed[2 * lane] = to_half(evens[lane]), packed[2 * lane + 1] = to_half(odds[lane]);
      write_lanes(registers, d[2 * column + half], mask, reinterpret_cast<const u32*>(packed));
    }
  } else {
    multiply_halves<Depth>(a, b + column, in.elements, from, to);
    for (u32 part = 0; part < 4; ++part) {
      const u32 slot = d[4 * column + part];
      const f32* products = reinterpret_cast<const f32*>(sums[part]);
      alignas(64) s32 out[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const s64 sum =
            static_cast<s64>(products[lane]) + (keep ? at<s32>(registers, slot)[lane] : 0);
        out[lane] = static_cast<s32>(
            std::is_same_v<Sum, Saturating> ? std::clamp<s64>(sum, INT32_MIN, INT32_MAX) : sum);
      }
      write_lanes(registers, slot, mask, out);
    }
  }
}

// ---- checks ----

// A tensor copy wrote these bytes in another swizzle than the descriptor reads them in. Nothing
// fails then, and the result is wrong.
bool swizzled_otherwise(Warp& warp, const Instruction& in, const Descriptor& from, u32 offset) {
  const u8 written = warp.block->shadow->swizzle_at(warp, offset);
  if (written == Shadow::kNoSwizzle || kSwizzleMask[written] == from.swizzle()) return false;
  misuse(warp, in,
         "a matrix descriptor with a swizzle of " + std::to_string(swizzle_span(from.swizzle())) +
             " bytes, for a tile at offset " + std::to_string(offset) +
             " that a tensor copy wrote with one of " +
             std::to_string(swizzle_span(kSwizzleMask[written])));
  return true;
}

// What this warp is asked to look at of an operand: its share of one that all four read.
void look(Warp& warp, const Instruction& in, const Operand& operand, bool shared_by_all,
          WarpGroup& group, u64 product, bool& reported) {
  Shadow& shadow = *warp.block->shadow;
  WarpGroup::Reading* mine = nullptr;
  for (WarpGroup::Reading& reading : group.reading)
    if (reading.product == product) mine = &reading;
  if (!mine) mine = &group.reading.emplace_back(WarpGroup::Reading{product, {}});
  for (u32 chunk = shared_by_all ? static_cast<u32>(warp.index % 4) : 0; chunk < operand.chunks();
       chunk += shared_by_all ? 4 : 1) {
    const u32 offset = operand.offset(chunk);
    if (!reported) reported = swizzled_otherwise(warp, in, operand.from, offset);
    shadow.async_read(warp, in, warp.all, offset, kChunk, reported);
    shadow.keep(warp, in, 0, offset, kChunk);
    mine->units.push_back(offset);
  }
}

template <class T>
bool alike(const T* lanes) {
  return std::all_of(lanes, lanes + kLanes, [&](T each) { return each == lanes[0]; });
}

// What reading the operands from shared memory takes: each warp its sixteen rows of A, and a share
// of B, which the four read once. A pass brings 128 bytes, and no layout that a descriptor can name
// has conflicts. An H200 counts as many (docs/GPUS.md).
void count_wavefronts(Warp& warp, const Instruction& in, bool reads_a) {
  Block& block = *warp.block;
  if (!block.counts) return;
  constexpr u32 pass = 128, members = 4;
  const u32 of_a = reads_a ? 16 * kRowBytes / pass : 0, of_b = 8 * in.elements * kRowBytes / pass;
  const u32 taken = of_a + (of_b + static_cast<u32>(warp.index) % members) / members;
  Counts& counts = block.counts[block.pc_of(in)];
  counts.wavefronts += taken;
  counts.ideal += taken;
}

// The warps of the group that this one belongs to are all there, and its descriptors make sense.
void check_group(Warp& warp, const Instruction& in, const u64* a, const u64* b) {
  if (static_cast<std::size_t>(warp.index / 4 * 4 + 4) > warp.block->warps->size())
    throw Stop{{.problem = Problem::bulk_misuse,
                .pc = warp.block->pc_of(in),
                .block = warp.block->index,
                .thread = warp.thread(0),
                .text = "a warp group of fewer than four warps: the block's threads must be a "
                        "multiple of 128"}};
  for (const u64* each : {a, b}) {
    if (!each) continue;
    if (warp.block->shadow && !alike(each))
      misuse(warp, in, "a matrix descriptor that differs between the lanes of a warp");
    if (Descriptor(each[0]).base)
      misuse(warp, in, "a matrix descriptor with a base offset, which the machine does not know");
  }
}

struct Task {
  alignas(64) u8 a[16 * kRowBytes];
  alignas(64) u8 b[kMostColumns * kRowBytes];
};

Operand operand_b(u8* registers, const Instruction& in) {
  return {Descriptor(at<const u64>(registers, in.group_product.b)[0]),
          (in.group_product.flags & Product::transpose_b) != 0, 0, 8u * in.elements};
}

// Brings A, and with `with_b` B, together. False where one of both lies outside shared memory.
bool fetch(u8* registers, const Instruction& in, Warp& warp, const Operand& b, bool with_b,
           Task& task) {
  Block& block = *warp.block;
  const u32 flags = in.group_product.flags, columns = b.rows,
            row = 16 * static_cast<u32>(warp.index % 4);
  const u64* descriptor_a =
      flags & Product::a_registers ? nullptr : at<const u64>(registers, in.address);
  const u64* descriptor_b = at<const u64>(registers, in.group_product.b);
  check_group(warp, in, descriptor_a, descriptor_b);
  WarpGroup& group = block.groups[static_cast<std::size_t>(warp.index / 4)];
  const u64 product = group.issued[warp.index % 4]++;
  if (block.recorder)
    block.recorder->event(
        {.warp = warp.index,
         .pc = block.pc_of(in),
         .kind = RecordedEvent::product,
         .at = static_cast<u32>(warp.index / 4),
         .phase = static_cast<s32>(product),
         .count = columns,
         .bytes = descriptor_a ? Descriptor(descriptor_a[0]).start : RecordedEvent::kInRegisters,
         .to = Descriptor(descriptor_b[0]).start,
         .tick = warp.now});
  count_wavefronts(warp, in, descriptor_a != nullptr);
  bool fine = !with_b || gather(warp, in, b, task.b), reported = false;
  if (descriptor_a) {
    const Operand a{Descriptor(descriptor_a[0]), (flags & Product::transpose_a) != 0, row, 16};
    fine &= gather(warp, in, a, task.a);
    if (fine && block.shadow) look(warp, in, a, false, group, product, reported);
  } else {
    for (u32 part = 0; part < 4; ++part)
      for (u32 r = 0; r < 8; ++r)
        std::memcpy(task.a + (part % 2 * 8 + r) * kRowBytes + part / 2 * kChunk,
                    registers + in.group_product.a[part] + r * kChunk, kChunk);
  }
  if (fine && block.shadow) {
    look(warp, in, b, true, group, product, reported);
    block.shadow->clocks.hand_on(warp.agent,
                                 kGroupKey + block.first_flag + static_cast<u64>(warp.index / 4));
  }
  return fine;
}

template <class A, class B, class Sum>
void product(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Task task;
  const Operand from = operand_b(registers, in);
  const bool regular = is_regular(from, warp.block->launch->shared_bytes);
  if (!fetch(registers, in, warp, from, !regular, task)) return;
  alignas(64) Row a[2][kDepth<A>][4];
  widen_a<A>(task.a, in.group_product.flags, a);
  const Row* b = widen_b<B>(warp, in, from, regular ? nullptr : task.b);
  const bool keep = !(in.group_product.flags & Product::drop_d) &&
                    (*at<u32>(registers, in.group_product.keeps_d) & mask);
  const std::vector<u32>& d = warp.block->kernel->fragments[static_cast<std::size_t>(in.target)];
  u32 column = 0;
  if (std::is_same_v<Sum, f32> && mask == kAllLanes)
    column = accumulate_pairs<kDepth<A>>(registers, in, d, keep, a, b);
  for (; column < in.elements; ++column)
    accumulate<Sum, kDepth<A>>(registers, in, mask, d, column, keep, a, b);
}

// Products of bits: how many are set in both rows.
void bit_product(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Task task;
  if (!fetch(registers, in, warp, operand_b(registers, in), true, task)) return;
  const bool keep = !(in.group_product.flags & Product::drop_d) &&
                    (*at<u32>(registers, in.group_product.keeps_d) & mask);
  const std::vector<u32>& d = warp.block->kernel->fragments[static_cast<std::size_t>(in.target)];
  for (u32 i = 0; i < 4u * in.elements; ++i) {
    alignas(64) s32 out[kLanes];
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const u32 row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      u64 x[4], y[4];
      std::memcpy(x, task.a + row * kRowBytes, sizeof x),
          std::memcpy(y, task.b + column * kRowBytes, sizeof y);
      s32 sum = keep ? at<s32>(registers, d[i])[lane] : 0;
      for (u32 k = 0; k < 4; ++k) sum += __builtin_popcountll(x[k] & y[k]);
      out[lane] = sum;
    }
    write_lanes(registers, d[i], mask, out);
  }
}

void commit(u8*, const Instruction&, u32, Warp& warp) {
  warp.products.push_back(
      warp.block->groups[static_cast<std::size_t>(warp.index / 4)].issued[warp.index % 4]);
}

// Until at most so many groups are pending, in all four warps.
void wait(u8*, const Instruction& in, u32, Warp& warp) {
  Block& block = *warp.block;
  const std::size_t keep = static_cast<std::size_t>(in.groups), committed = warp.products.size();
  if (committed <= keep) return;
  const u64 target = warp.products[committed - keep - 1];
  WarpGroup& group = block.groups[static_cast<std::size_t>(warp.index / 4)];
  for (u32 i = 0; i < 4; ++i) {
    if (group.issued[i] >= target) continue;
    const Warp& other = (*block.warps)[static_cast<std::size_t>(warp.index / 4 * 4) + i];
    if (other.done())
      throw Stop{{.problem = Problem::bulk_misuse,
                  .pc = block.pc_of(in),
                  .block = block.index,
                  .thread = warp.thread(0),
                  .text = "a product that warp " + std::to_string(other.index) +
                          " of the warp group took no part in"}};
    block.polled = true;
    return;
  }
  if (block.recorder)
    block.recorder->event({.warp = warp.index,
                           .pc = block.pc_of(in),
                           .kind = RecordedEvent::wait_products,
                           .at = static_cast<u32>(warp.index / 4),
                           .phase = static_cast<s32>(target),
                           .count = 0,
                           .bytes = 0,
                           .to = 0,
                           .tick = warp.now});
  if (!block.shadow) return;
  block.shadow->clocks.acquire(warp.agent,
                               kGroupKey + block.first_flag + static_cast<u64>(warp.index / 4));
  std::erase_if(group.reading, [&](const WarpGroup::Reading& reading) {
    if (reading.product >= target) return false;
    for (const u32 offset : reading.units) block.shadow->let_go(offset, kChunk);
    return true;
  });
}

void nothing(u8*, const Instruction&, u32, Warp&) {}

template <class A, class B, class Sum>
void add_product(Table& table, const std::string& types) {
  table.push_back({"wgmma." + types, &product<A, B, Sum>, Kind::collective, Class::tensor,
                   "fragment", "address,address,pred"});
}

template <class A, class B>
void add_integer(Table& table, const std::string& types) {
  add_product<A, B, Wrapping>(table, "s32." + types);
  add_product<A, B, Saturating>(table, "satfinite.s32." + types);
}

template <class A, class B>
void add_bytes(Table& table, const std::string& types) {
  add_product<A, B, f32>(table, "f32." + types);
  add_product<A, B, Half>(table, "f16." + types);
}

}  // namespace

void add_warp_groups(Table& table) {
  add_product<Half, Half, f32>(table, "f32.f16.f16"),
      add_product<Half, Half, Half>(table, "f16.f16.f16");
  add_product<Bfloat, Bfloat, f32>(table, "f32.bf16.bf16"),
      add_product<Tf32, Tf32, f32>(table, "f32.tf32.tf32");
  add_bytes<E4M3, E4M3>(table, "e4m3.e4m3"), add_bytes<E4M3, E5M2>(table, "e4m3.e5m2");
  add_bytes<E5M2, E4M3>(table, "e5m2.e4m3"), add_bytes<E5M2, E5M2>(table, "e5m2.e5m2");
  add_integer<s8, s8>(table, "s8.s8"), add_integer<s8, u8>(table, "s8.u8");
  add_integer<u8, s8>(table, "u8.s8"), add_integer<u8, u8>(table, "u8.u8");
  table.push_back({"wgmma.s32.b1.b1", &bit_product, Kind::collective, Class::tensor, "fragment",
                   "address,address,pred"});
  table.push_back({"wgmma.fence", &nothing, Kind::collective, Class::sync, "", ""});
  table.push_back({"wgmma.commit_group", &commit, Kind::collective, Class::sync, "", ""});
  table.push_back({"wgmma.wait_group", &wait, Kind::wait, Class::sync, "", "imm"});
}

}  // namespace workbench::ptx
