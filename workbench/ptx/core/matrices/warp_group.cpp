// wgmma: products of matrices in shared memory by four warps, D[64][N] = A[64][K] * B[K][N] + D,
// where a row of K has 32 bytes.
//
// `elements` is N / 8; `target` selects the list of D's registers. Each warp computes its sixteen
// rows when it executes the instruction, the earliest time that the hardware may choose; later
// changes of the operands' memory are found by checks. A group is over when all four warps have
// issued it.
//
// A sparse A stores 32 bytes in a row, too; with its zeros these are 64, and B's rows of K have 64.
// Each warp has the metadata of its own rows, as in mma.sp (PTX ISA, "Matrix fragments for
// warpgroup-level multiply-accumulate operation with sparse matrix A").
#include <algorithm>
#include <map>
#include <vector>

#include "exact/group.hpp"
#include "exact/handlers.hpp"
#include "matrices/group_product.hpp"
#include "matrices/sparse.hpp"

namespace workbench::ptx {
namespace {

using namespace wgmma;

constexpr u32 kMostColumns = 256;
constexpr u64 kGroupKey = u64{1} << 41;  // key of a group's clocks; no flag has it

void misuse(Warp& warp, const Instruction& in, const std::string& text) {
  warp.block->problem(Problem::bulk_misuse, in, warp.thread(0), 0, 0, text);
}

// Computes all of D, sixteen columns at a time, where its registers hold f32 and all lanes are
// active. Returns the number of eights that are done.
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

// Computes eight columns of D; `Sum` is the type in its registers.
template <class Sum, u32 Depth>
void accumulate(u8* registers, const Instruction& in, u32 mask, const std::vector<u32>& d,
                u32 column, bool keep, const Row (*a)[Depth][4], const Row* b) {
  alignas(64) Row sums[4][4];  // even and odd columns of one half of the rows, then of the other
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
      const s32* c = keep ? at<const s32>(registers, slot) : reinterpret_cast<const s32*>(kNothing);
      alignas(64) s32 out[kLanes];
      PTX_LANES {
        const s32 product = static_cast<s32>(products[lane]), before = c[lane];
        const s32 sum = static_cast<s32>(static_cast<u32>(before) + static_cast<u32>(product));
        // The sum has left the range of s32.
        const bool beyond = ((before ^ sum) & (product ^ sum)) < 0;
        out[lane] = std::is_same_v<Sum, Saturating> && beyond ? (before >> 31) ^ INT32_MAX : sum;
      }
      write_lanes(registers, slot, mask, out);
    }
  }
}

// ---- checks ----

// The chunks of an operand that this warp has to check: all, or its share of an operand that the
// four warps read together.
const Chunks& find_chunks(Warp& warp, const Operand& operand, bool shared_by_all) {
  constexpr u32 members = 4;
  const u32 share = shared_by_all ? static_cast<u32>(warp.index) % members : members;
  Operand moved = operand;
  moved.from.start %= kSwizzleBytes;
  const Descriptor& from = moved.from;
  const u64 number = u64{from.start >> 4} | u64{from.leading >> 4} << 6 |
                     u64{from.stride >> 4} << 20 | u64{from.mode} << 34 |
                     (operand.transposed ? u64{1} << 36 : 0) | u64{operand.first} << 37 |
                     u64{operand.rows} << 45 | u64{share} << 54;
  Block& block = *warp.block;
  return block.chunk_lists.find(number, [&] {
    std::vector<u32> offsets;
    for (u32 chunk = share % members; chunk < moved.chunks(); chunk += shared_by_all ? members : 1)
      offsets.push_back(moved.offset(chunk));
    return Chunks(std::move(offsets), block.shadow->scale());
  });
}

void look(Warp& warp, const Instruction& in, const Operand& operand, bool shared_by_all,
          WarpGroup& group, u64 product, bool& reported) {
  Shadow& shadow = *warp.block->shadow;
  const Chunks& chunks = find_chunks(warp, operand, shared_by_all);
  const u32 base = operand.from.start / kSwizzleBytes * kSwizzleBytes;
  group.reading.push_back({product, &chunks, base});
  shadow.keep(warp, in, 0, chunks, base);
  Shadow::AsyncReader reader(shadow, warp, in, warp.all);
  if (reader.log(chunks, base)) return;
  const bool has_swizzles = shadow.has_swizzles();
  for (const u32 offset : chunks.offsets) {
    if (has_swizzles && !reported)
      reported = is_swizzled_otherwise(warp, in, operand.from, base + offset, Problem::bulk_misuse);
    reader.read(base + offset, kChunk, reported);
  }
}

template <class T>
bool alike(const T* lanes) {
  return std::all_of(lanes, lanes + kLanes, [&](T each) { return each == lanes[0]; });
}

// Counts the reads of the operands from shared memory: each warp reads its sixteen rows of A, and a
// quarter of B, which the four read once. A pass reads 128 bytes, and no layout of a descriptor has
// conflicts. An H200 counts the same number (docs/GPUS.md).
void count_wavefronts(Warp& warp, const Instruction& in, bool reads_a, u32 steps) {
  Block& block = *warp.block;
  if (!block.counts) return;
  constexpr u32 pass = 128, members = 4;
  const u32 of_a = reads_a ? 16 * kRowBytes / pass : 0,
            of_b = 8 * in.elements * steps * kRowBytes / pass;
  const u32 taken = of_a + (of_b + static_cast<u32>(warp.index) % members) / members;
  Counts& counts = block.counts[block.pc_of(in)];
  counts.wavefronts += taken;
  counts.ideal += taken;
}

// Checks that all four warps of the group exist and that the descriptors are valid.
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
    if (Descriptor(each[0]).moves_pattern())
      misuse(
          warp, in,
          "a matrix descriptor with a base offset and a swizzle, which the machine does not know");
  }
}

template <u32 Steps>
struct Task {
  Operand from[Steps];  // B, in steps of 32 bytes of a row of K
  bool is_regular = true;
  alignas(64) u8 a[16 * kRowBytes];
  alignas(64) u8 b[Steps * kMostColumns * kRowBytes];

  Task(u8* registers, const Instruction& in, u32 shared_bytes) {
    Operand operand{Descriptor(at<const u64>(registers, in.group_product.b)[0]),
                    (in.group_product.flags & Product::transpose_b) != 0, 0, 8u * in.elements};
    Descriptor& descriptor = operand.from;
    for (u32 step = 0; step < Steps; ++step) {
      from[step] = operand;
      is_regular &= wgmma::is_regular(operand, shared_bytes);
      // Past sixteen K.
      if (operand.transposed)
        descriptor.start += 2 * (descriptor.mode ? descriptor.stride : descriptor.leading);
      else
        descriptor.start += descriptor.mode ? kRowBytes : 2 * descriptor.leading;
    }
  }
};

// Gathers A, and B if it is not regular. Returns false if either is outside shared memory.
template <u32 Steps>
bool fetch(u8* registers, const Instruction& in, Warp& warp, Task<Steps>& task) {
  Block& block = *warp.block;
  const u32 flags = in.group_product.flags, columns = task.from[0].rows,
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
  count_wavefronts(warp, in, descriptor_a != nullptr, Steps);
  bool fine = true, reported = false;
  if (Steps > 1 && !task.from[0].transposed && task.from[0].from.width() == 2) {
    misuse(warp, in,
           "a matrix descriptor of B with a swizzle of 32 bytes, where a row of K has 64: use one "
           "of 64 or 128 bytes, or none");
    fine = false;
  }
  for (u32 step = 0; fine && !task.is_regular && step < Steps; ++step)
    fine = gather(warp, in, task.from[step], task.b + step * columns * kRowBytes);
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
    for (const Operand& b : task.from) look(warp, in, b, true, group, product, reported);
    block.shadow->clocks.hand_on(warp.agent,
                                 kGroupKey + block.first_flag + static_cast<u64>(warp.index / 4));
  }
  return fine;
}

// Fills in the zeros of A, whose factors have `Bytes`: rows of 32 bytes for each half of K.
template <u32 Bytes>
void expand_a(u8* registers, const Instruction& in, Warp& warp, const u8* raw,
              u8 (*full)[16 * kRowBytes]) {
  using sparse::Allowed;
  constexpr bool small = Bytes == 1;
  using Unit = std::conditional_t<small, u8, u16>;
  constexpr Allowed allowed = Bytes == 4 ? Allowed::one_of_two : Allowed::distinct;
  const u32 flags = in.group_product.flags, selector = in.group_product.selector;
  alignas(64) u8 turned[16 * kRowBytes];
  if (flags & Product::transpose_a) {
    for (u32 row = 0; row < 16; ++row)
      for (u32 k = 0; k < 16; ++k)
        std::memcpy(turned + row * kRowBytes + 2 * k, raw + k * kRowBytes + 2 * row, 2);
    raw = turned;
  }
  const u32* metadata = at<const u32>(registers, in.group_product.metadata);
  for (u32 step = 0; step < 2; ++step)
    for (u32 row = 0; row < 16; ++row) {
      const u32 lane = row % 8 * 4 + (small ? 2 * step + row / 8 : 2 * selector + step);
      const u32 begin = small ? 0 : row / 8 * 16;
      const u32 mine = metadata[lane] >> begin;
      const u8* stored = raw + row * kRowBytes + step * kChunk;
      const auto is_zero = [&](u32 chunk) { return sparse::is_zero<Unit>(stored, chunk); };
      sparse::check(warp, in, lane, mine, begin, small ? 8 : 4, allowed, is_zero,
                    [&] { return sparse::place_in_lane(lane); });
      sparse::expand<Unit>(stored, mine, full[step] + row * kRowBytes);
    }
}

// Widens A with its zeros, in the form of widen_a for each 32 bytes of a row.
template <class T>
void widen_sparse_a(u8* registers, const Instruction& in, Warp& warp, const u8* raw,
                    Row (*out)[2 * kDepth<T>][4]) {
  alignas(64) u8 full[2][16 * kRowBytes];
  expand_a<kFactorBytes<T>>(registers, in, warp, raw, full);
  for (u32 step = 0; step < 2; ++step) {
    alignas(64) Row part[2][kDepth<T>][4];
    widen_a<T>(full[step], in.group_product.flags & ~u32{Product::transpose_a}, part);
    for (u32 half = 0; half < 2; ++half)
      std::memcpy(out[half][step * kDepth<T>], part[half], sizeof part[half]);
  }
}

template <class A, class B, class Sum, u32 Steps>
void product(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  constexpr u32 depth = Steps * kDepth<A>;
  Task<Steps> task(registers, in, warp.block->launch->shared_bytes);
  if (!fetch(registers, in, warp, task)) return;
  alignas(64) Row a[2][depth][4];
  if constexpr (Steps == 1)
    widen_a<A>(task.a, in.group_product.flags, a);
  else
    widen_sparse_a<A>(registers, in, warp, task.a, a);
  const Row* b = widen_b<B, Steps>(warp, in, task.from, task.is_regular ? nullptr : task.b);
  const bool keep = !(in.group_product.flags & Product::drop_d) &&
                    (*at<u32>(registers, in.group_product.keeps_d) & mask);
  const std::vector<u32>& d = warp.block->kernel->fragments[static_cast<std::size_t>(in.target)];
  u32 column = 0;
  if (std::is_same_v<Sum, f32> && mask == kAllLanes)
    column = accumulate_pairs<depth>(registers, in, d, keep, a, b);
  for (; column < in.elements; ++column)
    accumulate<Sum, depth>(registers, in, mask, d, column, keep, a, b);
}

// Products of bits: the number of bits that are set in both rows.
void bit_product(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Task<1> task(registers, in, warp.block->launch->shared_bytes);
  task.is_regular = false;
  if (!fetch(registers, in, warp, task)) return;
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

// Products of elements of a ring (exact/ring.hpp).
template <class A, class B, class Sums, u32 Steps>
void product_of_elements(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Task<Steps> task(registers, in, warp.block->launch->shared_bytes);
  task.is_regular = false;
  if (!fetch(registers, in, warp, task)) return;
  const u32 flags = in.group_product.flags, rows = 8u * in.elements;
  const bool keep =
      !(flags & Product::drop_d) && (*at<u32>(registers, in.group_product.keeps_d) & mask);
  const std::vector<u32>& d = warp.block->kernel->fragments[static_cast<std::size_t>(in.target)];
  alignas(64) u8 full[2][16 * kRowBytes];
  if (Steps == 2) expand_a<sizeof(typename A::Bits)>(registers, in, warp, task.a, full);
  for (u32 step = 0; step < Steps; ++step) {
    const bool transposed = Steps == 1 && (flags & Product::transpose_a);
    const exact::Gathered<A> a{Steps == 1 ? task.a : full[step], 16, transposed,
                               (flags & Product::negate_a) != 0};
    const exact::Gathered<B> b{task.b + step * rows * kRowBytes, rows,
                               (flags & Product::transpose_b) != 0,
                               (flags & Product::negate_b) != 0};
    exact::multiply_group<A, B, Sums>(registers, a, b, d, keep || step, mask);
  }
}

void commit(u8*, const Instruction&, u32, Warp& warp) {
  warp.products.push_back(
      warp.block->groups[static_cast<std::size_t>(warp.index / 4)].issued[warp.index % 4]);
}

// Waits until at most a given number of groups are pending, in all four warps.
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
  block.shadow->acquire(warp.agent,
                        kGroupKey + block.first_flag + static_cast<u64>(warp.index / 4));
  std::erase_if(group.reading, [&](const WarpGroup::Reading& reading) {
    if (reading.product >= target) return false;
    block.shadow->let_go(*reading.chunks, reading.base);
    return true;
  });
}

void nothing(u8*, const Instruction&, u32, Warp&) {}

template <class A, class B, class Sum>
void add_product(Table& table, const std::string& types) {
  table.push_back({"wgmma." + types, &product<A, B, Sum, 1>, Kind::collective, Class::tensor,
                   "fragment", "address,address,pred"});
  table.push_back({"wgmma.sp." + types, &product<A, B, Sum, 2>, Kind::collective, Class::tensor,
                   "fragment", "address,address,b32,pred"});
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

namespace {

template <class A, class B, class Sums>
void add_elements(std::map<std::string, Handler>& all, const std::string& types) {
  all["wgmma." + types] = &product_of_elements<A, B, Sums, 1>;
  all["wgmma.sp." + types] = &product_of_elements<A, B, Sums, 2>;
}

template <class A, class B>
void add_elements_of_bytes(std::map<std::string, Handler>& all, const std::string& types) {
  add_elements<A, B, exact::SumsInSingle>(all, "f32." + types);
  add_elements<A, B, exact::SumsInHalf>(all, "f16." + types);
}

std::map<std::string, Handler> products_of_elements() {
  using namespace exact;
  using F8 = EightBits<E4M3>;
  using G8 = EightBits<E5M2>;
  std::map<std::string, Handler> all;
  add_elements<HalfCode, HalfCode, SumsInSingle>(all, "f32.f16.f16");
  add_elements<HalfCode, HalfCode, SumsInHalf>(all, "f16.f16.f16");
  add_elements<BfloatCode, BfloatCode, SumsInSingle>(all, "f32.bf16.bf16");
  add_elements<Single, Single, SumsInSingle>(all, "f32.tf32.tf32");
  add_elements_of_bytes<F8, F8>(all, "e4m3.e4m3");
  add_elements_of_bytes<F8, G8>(all, "e4m3.e5m2");
  add_elements_of_bytes<G8, F8>(all, "e5m2.e4m3");
  add_elements_of_bytes<G8, G8>(all, "e5m2.e5m2");
  return all;
}

}  // namespace

std::optional<Handlers> exact::group_product(const std::string& name) {
  static const std::map<std::string, Handler> all = products_of_elements();
  const auto found = all.find(name);
  return found == all.end() ? std::nullopt : std::optional(Handlers(found->second));
}

}  // namespace workbench::ptx
