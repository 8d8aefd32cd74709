// The descriptors of cuBLASLt. cublasLt.h fixes their sizes, and a program may own their memory.
#pragma once
#include <vector>

#include "../products.hpp"
#include "../status.hpp"

#define LT_API extern "C" __attribute__((visibility("default"))) int

namespace workbench::host {

enum Order : int { kColumns = 0, kRows = 1 };

struct Layout {
  std::uint32_t type;
  std::int32_t order;
  std::uint64_t rows, columns;
  i64 stride;
  std::int32_t batch_count, batch_mode;
  i64 batch_stride, plane;
};

struct MatmulDesc {
  std::int32_t compute, scale, pointer_mode, op_a, op_b, op_c, fill;
  std::uint32_t epilogue;
  void* bias;
  i64 bias_stride;
  void* aux;
  i64 aux_stride, aux_batch_stride, alpha_stride;
  std::int32_t multiprocessors;
  std::int32_t scale_modes[5];  // for A, B, C, D and the auxiliary output
  const void* scales[4];        // for A, B, C and D
  void* amax;
  std::int32_t aux_type, bias_type;
  void *aux_scale, *aux_amax, *out_scale;
  std::int32_t out_scale_mode;
  std::int8_t fast_accumulation;
  void* emulation;
};

struct Preference {
  std::uint32_t search, reductions, alignment[4];
  std::uint64_t workspace;
  float waves;
  std::uint64_t implementations;
};

struct TransformDesc {
  std::int32_t scale, pointer_mode, op_a, op_b;
};

struct Algorithm {
  std::uint64_t words[8];
};

struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Layout) <= 64 && sizeof(MatmulDesc) <= 256 && sizeof(Preference) <= 64 &&
              sizeof(TransformDesc) <= 64 && sizeof(Heuristic) == 96);

// The form of alpha and beta: one number, or one for each row of the result.
enum PointerMode : int {
  kOnHost = 0,
  kOnDevice = 1,
  kVectors = 2,
  kAlphaVector = 3,  // with a beta of 0
  kAlphaVectorBetaHost = 4,
};

// Refuses a layout that is not supported in products.
void check_layout(const Layout& layout, const char* argument);

// op(matrix) by columns, converted to T.
template <class T>
std::vector<T> dense(const Layout& layout, const void* data, char op) {
  const auto rows = static_cast<i64>(layout.rows), columns = static_cast<i64>(layout.columns);
  const bool turned = op != 'N';
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  with_type(static_cast<int>(layout.type), "a matrix", kNotSupported, [&](auto one) {
    const auto* from = static_cast<const decltype(one)*>(data);
    for (i64 column = 0; column < columns; ++column) {
      for (i64 row = 0; row < rows; ++row) {
        const i64 at =
            layout.order == kRows ? row * layout.stride + column : column * layout.stride + row;
        T value = converted<T>(from[at]);
        if constexpr (is_complex<T>)
          if (op == 'C') value = std::conj(value);
        values[static_cast<std::size_t>(turned ? row * columns + column : column * rows + row)] =
            value;
      }
    }
  });
  return values;
}

template <class T>
void write(const Layout& layout, const std::vector<T>& values, void* data) {
  const auto rows = static_cast<i64>(layout.rows), columns = static_cast<i64>(layout.columns);
  with_type(static_cast<int>(layout.type), "a matrix", kNotSupported, [&](auto one) {
    auto* to = static_cast<decltype(one)*>(data);
    for (i64 column = 0; column < columns; ++column)
      for (i64 row = 0; row < rows; ++row)
        to[layout.order == kRows ? row * layout.stride + column : column * layout.stride + row] =
            converted<decltype(one)>(values[static_cast<std::size_t>(column * rows + row)]);
  });
}

// The host address of the `index`-th matrix of a batch.
void* matrix_of(Frame& frame, const char* argument, const Layout& layout, const void* first,
                i64 index, Access access);

}  // namespace workbench::host
