// mma.sp: products of a sparse A, computed by the dense mma of A with its zeros filled in.
//
// A register of a sparse fragment has 16 stored bytes of each of eight rows, which are 32 bytes of
// A with its zeros. A product has one or two such halves along K; the handler of the dense mma runs
// for each, on temporary registers. Sums stay in f32, and C of integers is added last, so that the
// result is rounded or saturated once.
//
// The selector says which of the four lanes of rows g and g + 8 hold the metadata (PTX ISA, "Matrix
// fragments for multiply-accumulate operation with sparse matrix A"). Factors of 16 bits and more
// have 16 bits of metadata for half a row: a lane's lower bits are for row g, its upper bits for
// row g + 8, and the next lane has the next half. Smaller factors have 32 bits: the next lane has
// row g + 8, and the lanes behind both have the next half.
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>

#include "exact/handlers.hpp"
#include "exact/lanes.hpp"
#include "matrices/sparse.hpp"
#include "matrices/tiles.hpp"
#include "warp.hpp"

namespace workbench::ptx {
namespace {

enum class Sum : u8 { f32_, f16_, wrapping, saturating };

struct SparseForm {
  std::string name;
  std::string dense;  // name of the dense instruction, for half of K, with sums in f32 or s32
  bool is_small;      // factors of 8 bits and less
  bool is_tf32;
  u32 halves;
  Sum sum;
  u32 scales;  // scales of a row; 0 without scales
  Handler run_dense = nullptr;
  Handler run_on_elements = nullptr;  // the same on elements of a ring (exact/ring.hpp)
};

constexpr u32 kRegisterBytes = kLanes * sizeof(u32);
constexpr u32 kRowBytes = 16;  // bytes of a row in one register

// The temporary registers of the dense handlers.
struct alignas(64) Scratch {
  u8 sums[4][kRegisterBytes], a[4][kRegisterBytes], b[2][kRegisterBytes];
  u8 scale_a[kRegisterBytes], scale_b[kRegisterBytes], selectors[2 * kRegisterBytes];

  u8* registers() { return sums[0]; }
};

template <class Operands>
void place_factors(Operands& operands) {
  for (u32 i = 0; i < 4; ++i) {
    operands.c[i] = operands.d[i] = static_cast<u32>(offsetof(Scratch, sums)) + i * kRegisterBytes;
    operands.a[i] = static_cast<u32>(offsetof(Scratch, a)) + i * kRegisterBytes;
  }
  for (u32 i = 0; i < 2; ++i)
    operands.b[i] = static_cast<u32>(offsetof(Scratch, b)) + i * kRegisterBytes;
}

const Instruction& dense_instruction(bool scaled) {
  static const Instruction plain = [] {
    Instruction in;
    place_factors(in.product);
    return in;
  }();
  static const Instruction with_scales = [] {
    Instruction in;
    place_factors(in.scaled_product);
    in.scaled_product.scale_a = offsetof(Scratch, scale_a);
    in.scaled_product.scale_b = offsetof(Scratch, scale_b);
    in.scaled_product.selectors = offsetof(Scratch, selectors);
    return in;
  }();
  return scaled ? with_scales : plain;
}

class SparseTask {
 public:
  SparseTask(const SparseForm& form, bool on_elements, u8* registers, const Instruction& in,
             u32 mask, Warp& warp)
      : form_(form),
        on_elements_(on_elements),
        registers_(registers),
        in_(in),
        product_(in.sparse_product),
        mask_(mask),
        warp_(warp) {}
  void run();

 private:
  u32 metadata_lane(u32 row, u32 half) const {
    if (!form_.is_small) return row % 8 * 4 + form_.halves * product_.selector + half;
    return row % 8 * 4 + 2 * product_.selector + 2 * half + row / 8;
  }
  void expand_a(u32 half);
  void fetch_scales(u32 half);
  // Between sums of f16 and of f32.
  u32 widened(Half x) const {
    if (!on_elements_) return bits_as<u32>(to_f32(x));
    return exact::Single::write(exact::HalfCode::read(x.bits));
  }
  Half narrowed(u32 bits) const {
    if (!on_elements_) return to_half(bits_as<f32>(bits));
    return Half{exact::HalfCode::write(exact::Single::read(bits))};
  }
  void read_sums();
  void write_sums();

  const SparseForm& form_;
  const bool on_elements_;
  u8* registers_;
  const Instruction& in_;
  const operands::SparseProduct& product_;
  u32 mask_;
  Warp& warp_;
  Scratch scratch_;
};

void SparseTask::expand_a(u32 half) {
  using sparse::Allowed;
  const Allowed allowed = form_.is_tf32      ? Allowed::one_of_two
                          : product_.ordered ? Allowed::ascending
                                             : Allowed::distinct;
  const u32* metadata = at<const u32>(registers_, product_.metadata);
  for (u32 row = 0; row < 16; ++row) {
    const u32 lane = metadata_lane(row, half), begin = form_.is_small ? 0 : row / 8 * 16;
    const u32 mine = metadata[lane] >> begin;
    const u8* stored = registers_ + product_.a[2 * half + row / 8] + row % 8 * kRowBytes;
    const auto is_zero = [&](u32 chunk) {
      return form_.is_small ? sparse::is_zero<u8>(stored, chunk)
                            : sparse::is_zero<u16>(stored, chunk);
    };
    sparse::check(warp_, in_, lane, mine, begin, form_.is_small ? 8 : 4, allowed, is_zero,
                  [&] { return sparse::place_in_lane(lane); });
    u8 full[2 * kRowBytes];
    if (form_.is_small)
      sparse::expand<u8>(stored, mine, full);
    else
      sparse::expand<u16>(stored, mine, full);
    for (u32 part = 0; part < 2; ++part)
      std::memcpy(scratch_.a[row / 8 + 2 * part] + row % 8 * kRowBytes, full + part * kRowBytes,
                  kRowBytes);
  }
}

// The dense product of a half has as many scales in a row as the sparse one, each for half as many
// elements.
void SparseTask::fetch_scales(u32 half) {
  const u64* selectors = at<const u64>(registers_, product_.selectors);
  const u64 mine = selectors[first_lane(mask_)];
  const auto fetch = [&](Slot slot, u32 which, u8* out) {
    const u32* from = at<const u32>(registers_, slot);
    const u32 first = static_cast<u32>(mine >> 32 * which & (4 - form_.scales));
    for (u32 lane = 0; lane < kLanes; ++lane) {
      u8* to = out + lane * sizeof(u32);
      for (u32 i = 0; i < form_.scales; ++i)
        to[i] = static_cast<u8>(from[lane] >> 8 * (first + (half * form_.scales + i) / 2));
    }
  };
  fetch(product_.scale_a, 0, scratch_.scale_a);
  fetch(product_.scale_b, 1, scratch_.scale_b);
  // The selected bytes come first now.
  constexpr u64 threads = 0xffff0000ffff0000u;
  std::fill_n(reinterpret_cast<u64*>(scratch_.selectors), kLanes, mine & threads);
}

void SparseTask::read_sums() {
  if (form_.sum == Sum::f32_) {
    for (u32 i = 0; i < 4; ++i)
      std::memcpy(scratch_.sums[i], registers_ + product_.c[i], kRegisterBytes);
  } else if (form_.sum == Sum::f16_) {
    for (u32 i = 0; i < 4; ++i) {
      const Half* from = at<const Half>(registers_, product_.c[i / 2]);
      u32* to = reinterpret_cast<u32*>(scratch_.sums[i]);
      for (u32 lane = 0; lane < kLanes; ++lane) to[lane] = widened(from[2 * lane + i % 2]);
    }
  } else {
    std::memset(scratch_.sums, 0, sizeof scratch_.sums);
  }
}

void SparseTask::write_sums() {
  const std::vector<u32>& d = warp_.block->kernel->fragments[static_cast<std::size_t>(in_.target)];
  if (form_.sum == Sum::f32_) {
    for (u32 i = 0; i < 4; ++i)
      write_lanes(registers_, d[i], mask_, reinterpret_cast<const u32*>(scratch_.sums[i]));
  } else if (form_.sum == Sum::f16_) {
    for (u32 i = 0; i < 2; ++i) {
      alignas(64) Half out[2 * kLanes];
      for (u32 part = 0; part < 2; ++part) {
        const u32* from = reinterpret_cast<const u32*>(scratch_.sums[2 * i + part]);
        for (u32 lane = 0; lane < kLanes; ++lane) out[2 * lane + part] = narrowed(from[lane]);
      }
      write_lanes(registers_, d[i], mask_, reinterpret_cast<const u32*>(out));
    }
  } else {
    alignas(64) u32 out[4][kLanes];
    for (u32 i = 0; i < 4; ++i) {
      const s32* products = reinterpret_cast<const s32*>(scratch_.sums[i]);
      const s32* c = at<const s32>(registers_, product_.c[i]);
      for (u32 lane = 0; lane < kLanes; ++lane) {
        s64 sum = s64{c[lane]} + products[lane];
        if (form_.sum == Sum::saturating)
          sum = std::clamp<s64>(sum, std::numeric_limits<s32>::min(),
                                std::numeric_limits<s32>::max());
        out[i][lane] = static_cast<u32>(sum);
      }
    }
    for (u32 i = 0; i < 4; ++i) write_lanes(registers_, d[i], mask_, out[i]);
  }
}

void SparseTask::run() {
  read_sums();
  for (u32 half = 0; half < form_.halves; ++half) {
    expand_a(half);
    for (u32 i = 0; i < 2; ++i)
      std::memcpy(scratch_.b[i], registers_ + product_.b[2 * half + i], kRegisterBytes);
    if (form_.scales) fetch_scales(half);
    const Handler run_dense = on_elements_ ? form_.run_on_elements : form_.run_dense;
    run_dense(scratch_.registers(), dense_instruction(form_.scales != 0), kAllLanes, warp_);
  }
  write_sums();
}

// ---- the table ----

std::vector<SparseForm> list_forms() {
  std::vector<SparseForm> forms;
  const auto add = [&](u32 dense_depth, bool is_small, u32 halves, const std::string& types,
                       const std::string& sums, Sum sum) {
    const std::string accumulator = sum == Sum::f16_ ? "f16" : sums;
    const std::string saturating = sum == Sum::saturating ? "satfinite." : "";
    forms.push_back(
        {.name = "m16n8k" + std::to_string(halves * dense_depth) + "." + saturating + accumulator +
                 "." + types + "." + accumulator,
         .dense = "m16n8k" + std::to_string(dense_depth) + "." + sums + "." + types + "." + sums,
         .is_small = is_small,
         .is_tf32 = types == "tf32.tf32",
         .halves = halves,
         .sum = sum,
         .scales = 0});
  };
  for (u32 halves = 1; halves <= 2; ++halves) {
    add(16, false, halves, "f16.f16", "f32", Sum::f32_);
    add(16, false, halves, "f16.f16", "f32", Sum::f16_);
    add(16, false, halves, "bf16.bf16", "f32", Sum::f32_);
    add(8, false, halves, "tf32.tf32", "f32", Sum::f32_);
    for (const char* types : {"s8.s8", "s8.u8", "u8.s8", "u8.u8"})
      for (const Sum sum : {Sum::wrapping, Sum::saturating})
        add(32, true, halves, types, "s32", sum);
    for (const char* types : {"s4.s4", "s4.u4", "u4.s4", "u4.u4"})
      for (const Sum sum : {Sum::wrapping, Sum::saturating})
        add(64, true, halves, types, "s32", sum);
  }
  const auto add_scaled = [&](u32 dense_depth, u32 scales, const std::string& types,
                              const std::string& scale) {
    const std::string rest =
        ".block_scale." + std::to_string(scales) + "X.f32." + types + ".f32." + scale;
    forms.push_back({.name = "m16n8k" + std::to_string(2 * dense_depth) + rest,
                     .dense = "m16n8k" + std::to_string(dense_depth) + rest,
                     .is_small = true,
                     .is_tf32 = false,
                     .halves = 2,
                     .sum = Sum::f32_,
                     .scales = scales});
  };
  for (const std::string a : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}) {
    for (const std::string b : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}) {
      add(32, true, 2, a + "." + b, "f32", Sum::f32_);
      add(32, true, 2, a + "." + b, "f32", Sum::f16_);
      add_scaled(32, 1, a + "." + b, "ue8m0");
    }
  }
  add_scaled(64, 2, "e2m1.e2m1", "ue8m0");
  add_scaled(64, 4, "e2m1.e2m1", "ue8m0");
  add_scaled(64, 4, "e2m1.e2m1", "ue4m3");
  return forms;
}

std::vector<SparseForm>& sparse_forms() {
  static std::vector<SparseForm> forms = list_forms();
  return forms;
}

constexpr std::size_t kForms = 118;

template <std::size_t Number, bool OnElements>
void mma_sparse(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  static const SparseForm& form = sparse_forms()[Number];
  SparseTask(form, OnElements, registers, in, mask, warp).run();
}

template <bool OnElements, std::size_t... Numbers>
constexpr std::array<Handler, kForms> list_handlers(std::index_sequence<Numbers...>) {
  return {&mma_sparse<Numbers, OnElements>...};
}
constexpr std::make_index_sequence<kForms> kNumbers;

}  // namespace

// Called after all dense instructions were added, as it looks up their handlers.
void add_sparse_matrix(Table& table) {
  constexpr std::array<Handler, kForms> handlers = list_handlers<false>(kNumbers);
  std::vector<SparseForm>& forms = sparse_forms();
  if (forms.size() != kForms) throw std::logic_error("kForms is not the number of sparse products");
  for (std::size_t number = 0; number < kForms; ++number) {
    SparseForm& form = forms[number];
    const auto dense = std::find_if(table.begin(), table.end(), [&](const TableEntry& entry) {
      return entry.name == "mma." + form.dense;
    });
    if (dense == table.end()) throw std::logic_error("no dense product mma." + form.dense);
    form.run_dense = dense->run.bare;
    if (const auto found = exact::matrix_product(dense->name)) form.run_on_elements = found->bare;
    table.push_back({"mma.sp." + form.name, handlers[number], Kind::collective, Class::tensor,
                     "fragment",
                     form.scales ? "fragment,fragment,fragment,b32,b32,b32,b64"
                                 : "fragment,fragment,fragment,b32"});
  }
}

// Products of integers have none.
std::optional<Handlers> exact::sparse_product(const std::string& form) {
  static constexpr std::array<Handler, kForms> handlers = list_handlers<true>(kNumbers);
  const std::vector<SparseForm>& forms = sparse_forms();
  for (std::size_t number = 0; number < kForms; ++number)
    if (forms[number].run_on_elements && "sp." + forms[number].name == form)
      return Handlers(handlers[number]);
  return std::nullopt;
}

}  // namespace workbench::ptx
