// D = epilogue(alpha * op(A) * op(B) + beta * C + bias), and its single algorithm.
#include <cstring>

#include "lt.hpp"

namespace workbench::host {

void check_layout(const Layout& layout, const char* argument) {
  const std::string name = argument;
  if (layout.order != kColumns && layout.order != kRows)
    throw Failed{kNotSupported, "the order " + std::to_string(layout.order) + " of " + name +
                                    "; CUBLASLT_ORDER_COL and CUBLASLT_ORDER_ROW are there"};
  if (layout.batch_mode)
    throw Failed{kNotSupported,
                 name + " is a batch by pointers; CUBLASLT_BATCH_MODE_STRIDED is there"};
  const std::uint64_t runs = layout.order == kRows ? layout.columns : layout.rows;
  at_least(layout.stride, std::max<i64>(1, static_cast<i64>(runs)),
           (name + "'s leading dimension").c_str(), kInvalidValue);
  at_least(layout.batch_count, 1, (name + "'s batch count").c_str(), kInvalidValue);
  bytes_of(static_cast<int>(layout.type));
}

void* matrix_of(Frame& frame, const char* argument, const Layout& layout, const void* first,
                i64 index, Access access) {
  const auto type = static_cast<int>(layout.type);
  const auto rows = static_cast<i64>(layout.rows), columns = static_cast<i64>(layout.columns);
  const std::string name =
      layout.batch_count > 1 ? argument + ("[" + std::to_string(index)) + "]" : argument;
  const auto* address = static_cast<const char*>(first) +
                        index * layout.batch_stride * static_cast<i64>(bytes_of(type));
  const bool by_rows = layout.order == kRows;
  return frame.range(name, address, bytes_of(type), by_rows ? columns : rows,
                     by_rows ? rows : columns, layout.stride, access);
}

namespace {

enum Epilogue : unsigned {
  kRelu = 2,
  kBias = 4,
  kReluGradient = 8,
  kBiasGradient = 16,
  kGelu = 32,
  kGeluGradient = 64,
  kAux = 128,
  kBiasGradientA = 256,
  kBiasGradientB = 512,
};

struct Problem {
  MatmulDesc desc;
  Layout a, b, c, d;
  char op_a, op_b;
  i64 m, n, k;
  int type, bias_type, aux_type;  // `type` is that of the computation
};

void refuse_unless(bool right, const char* what) {
  if (!right) throw Failed{kNotSupported, what};
}

// Validates a call and returns its facts; throws Failed for an unsupported one.
Problem problem(const MatmulDesc* desc, const Layout* a, const Layout* b, const Layout* c,
                const Layout* d) {
  Problem p{needed(desc, "computeDesc"),
            needed(a, "Adesc"),
            needed(b, "Bdesc"),
            needed(c, "Cdesc"),
            needed(d, "Ddesc"),
            'N',
            'N',
            0,
            0,
            0,
            0,
            0,
            0};
  p.op_a = operation(p.desc.op_a, "transa");
  p.op_b = operation(p.desc.op_b, "transb");
  const Computed computed =
      computed_in(p.desc.compute, static_cast<int>(p.a.type), static_cast<int>(p.b.type),
                  static_cast<int>(p.d.type), kNotSupported);
  refuse_unless(computed.scale == p.desc.scale, "the scale type is not that of the compute type");
  refuse_unless(p.c.type == p.d.type, "C and D of different types");
  refuse_unless(p.desc.op_c == 0 && p.desc.fill == 2, "C transposed, or a triangle of it");
  refuse_unless(!p.desc.amax && !p.desc.aux_scale && !p.desc.aux_amax && !p.desc.out_scale,
                "scales and maxima of results, which belong to float8; use float16 or bfloat16");
  for (const int mode : p.desc.scale_modes)
    refuse_unless(mode == 0,
                  "scales by block or by row, which belong to float8; one scale is there");
  refuse_unless(!is_integer(computed.scale) || p.desc.epilogue == 1,
                "an epilogue of int32 results");
  p.type = computed.type;
  const auto rows = [](const Layout& one) { return static_cast<i64>(one.rows); };
  const auto columns = [](const Layout& one) { return static_cast<i64>(one.columns); };
  p.m = p.op_a == 'N' ? rows(p.a) : columns(p.a);
  p.k = p.op_a == 'N' ? columns(p.a) : rows(p.a);
  p.n = p.op_b == 'N' ? columns(p.b) : rows(p.b);
  const i64 other_k = p.op_b == 'N' ? rows(p.b) : columns(p.b);
  for (const auto& [layout, argument] :
       {std::pair{&p.a, "A"}, {&p.b, "B"}, {&p.c, "C"}, {&p.d, "D"}}) {
    check_layout(*layout, argument);
    if (layout->batch_count != p.d.batch_count)
      throw Failed{kInvalidValue, std::string(argument) + " has a batch of " +
                                      std::to_string(layout->batch_count) + ", D of " +
                                      std::to_string(p.d.batch_count)};
  }
  if (other_k != p.k || rows(p.d) != p.m || columns(p.d) != p.n || rows(p.c) != p.m ||
      columns(p.c) != p.n)
    throw Failed{kInvalidValue,
                 "op(A) is " + std::to_string(p.m) + " x " + std::to_string(p.k) + ", op(B) " +
                     std::to_string(other_k) + " x " + std::to_string(p.n) + ", C " +
                     std::to_string(rows(p.c)) + " x " + std::to_string(columns(p.c)) + ", D " +
                     std::to_string(rows(p.d)) + " x " + std::to_string(columns(p.d))};
  p.bias_type = p.desc.bias_type < 0 ? static_cast<int>(p.d.type) : p.desc.bias_type;
  p.aux_type = p.desc.aux_type < 0 ? static_cast<int>(p.d.type) : p.desc.aux_type;
  return p;
}

// ---- the epilogue ----

// The approximation by tanh, as cuBLASLt documents it, and its derivative.
template <class T>
T gelu(T x) {
  const T inner = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + std::tanh(inner));
}
template <class T>
T gelu_gradient(T x) {
  const T cubic = T(0.044715) * x * x;
  const T t = std::tanh(T(0.7978845608028654) * (x + cubic * x));
  return T(0.5) * (T(1) + t) +
         T(0.5) * x * (T(1) - t * t) * T(0.7978845608028654) * (T(1) + T(3) * cubic);
}

// A vector on the device, converted to T.
template <class T>
std::vector<T> numbers(Frame& frame, const char* argument, const void* address, int type,
                       i64 count) {
  const void* from = frame.range(argument, address, bytes_of(type), count, 1, count, Access::reads);
  std::vector<T> values(static_cast<std::size_t>(count));
  with_type(type, argument, kNotSupported, [&](auto one) {
    for (i64 i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] =
          converted<T>(static_cast<const decltype(one)*>(from)[i]);
  });
  return values;
}

template <class T>
void leave_sums(Frame& frame, const Problem& p, void* address, i64 index,
                const std::vector<T>& values) {
  const auto count = static_cast<i64>(values.size());
  char* to = static_cast<char*>(address) +
             index * p.desc.bias_stride * static_cast<i64>(bytes_of(p.bias_type));
  void* here = frame.range("bias", to, bytes_of(p.bias_type), count, 1, count, Access::writes);
  with_type(p.bias_type, "bias", kNotSupported, [&](auto one) {
    for (i64 i = 0; i < count; ++i)
      static_cast<decltype(one)*>(here)[i] =
          converted<decltype(one)>(values[static_cast<std::size_t>(i)]);
  });
}

// ReLU's auxiliary matrix has a bit per element: 1 if the input is positive.
constexpr i64 kBits = 8;

template <class T>
void finish(Frame& frame, const Problem& p, std::vector<T>& values, i64 index) {
  const unsigned epilogue = p.desc.epilogue;
  const auto at = [&](i64 row, i64 column) -> T& {
    return values[static_cast<std::size_t>(column * p.m + row)];
  };
  const auto each = [&](auto&& body) {
    for (i64 column = 0; column < p.n; ++column)
      for (i64 row = 0; row < p.m; ++row) body(row, column, at(row, column));
  };
  if (epilogue & kBias) {
    const char* bias = static_cast<const char*>(p.desc.bias) +
                       index * p.desc.bias_stride * static_cast<i64>(bytes_of(p.bias_type));
    const std::vector<T> added = numbers<T>(frame, "bias", bias, p.bias_type, p.m);
    each([&](i64 row, i64, T& value) { value += added[static_cast<std::size_t>(row)]; });
  }
  const bool bits = epilogue & (kRelu | kReluGradient);
  const bool reads = epilogue & (kReluGradient | kGeluGradient);
  if (epilogue & kAux) {
    const i64 offset = index * p.desc.aux_batch_stride;
    const auto bytes = static_cast<i64>(bits ? 1 : bytes_of(p.aux_type));
    char* first = static_cast<char*>(p.desc.aux) + (bits ? offset / kBits : offset * bytes);
    const i64 stride = bits ? p.desc.aux_stride / kBits : p.desc.aux_stride;
    void* aux = frame.range("the auxiliary matrix", first, static_cast<std::size_t>(bytes),
                            bits ? (p.m + kBits - 1) / kBits : p.m, p.n, stride,
                            reads ? Access::reads : Access::updates);
    if (bits) {
      auto* mask = static_cast<unsigned char*>(aux);
      each([&](i64 row, i64 column, T& value) {
        unsigned char& byte = mask[column * stride + row / kBits];
        const auto bit = static_cast<unsigned char>(1u << (row % kBits));
        if (reads)
          value = byte & bit ? value : T{};
        else
          byte = static_cast<unsigned char>(value > T{} ? byte | bit : byte & ~bit);
      });
    } else {
      with_type(p.aux_type, "the auxiliary matrix", kNotSupported, [&](auto one) {
        auto* kept = static_cast<decltype(one)*>(aux);
        each([&](i64 row, i64 column, T& value) {
          auto& other = kept[column * stride + row];
          if (reads)
            value *= gelu_gradient(converted<T>(other));
          else
            other = converted<decltype(one)>(value);
        });
      });
    }
  }
  if (epilogue & kRelu) each([](i64, i64, T& value) { value = value < T{} ? T{} : value; });
  if (epilogue & kGelu) each([](i64, i64, T& value) { value = gelu(value); });
  if (epilogue & kBiasGradient) {
    std::vector<T> sums(static_cast<std::size_t>(p.m));
    each([&](i64 row, i64, T& value) { sums[static_cast<std::size_t>(row)] += value; });
    leave_sums(frame, p, p.desc.bias, index, sums);
  }
}

// ---- the call ----

// alpha or beta: read when the call is made, or on the device.
struct Factor {
  const void* device;
  bool vector;
  DoubleComplex value;

  template <class T>
  std::vector<T> get(Frame& frame, const char* argument, int scale, i64 rows, i64 index) const {
    const auto count = static_cast<std::size_t>(rows);
    if (!device) return std::vector<T>(count, converted<T>(value));
    const char* from = static_cast<const char*>(device) + index * static_cast<i64>(bytes_of(scale));
    const std::vector<T> read = numbers<T>(frame, argument, from, scale, vector ? rows : 1);
    return vector ? read : std::vector<T>(count, read[0]);
  }
};

DoubleComplex on_host(const void* address, const char* argument, int scale) {
  need_address(address, argument);
  if (on_device_alone(address))
    throw Failed{kInvalidValue, std::string(argument) +
                                    " is in device memory, but the pointer mode is "
                                    "CUBLASLT_POINTER_MODE_HOST"};
  return with_type(scale, argument, kNotSupported, [&](auto one) {
    return converted<DoubleComplex>(*static_cast<const decltype(one)*>(address));
  });
}

template <class T>
T scale_of(Frame& frame, const Problem& p, int which, const char* argument) {
  return p.desc.scales[which] ? converted<T>(*frame.vector(
                                    argument, static_cast<const float*>(p.desc.scales[which]), 1))
                              : T(1);
}

template <class T>
void run(Frame& frame, const Problem& p, const Factor& alpha, const void* a, const void* b,
         const Factor& beta, const void* c, void* d) {
  const T scale_a =
      scale_of<T>(frame, p, 0, "the scale of A") * scale_of<T>(frame, p, 1, "the scale of B");
  const T scale_c = scale_of<T>(frame, p, 2, "the scale of C"),
          scale_d = scale_of<T>(frame, p, 3, "the scale of D");
  for (i64 i = 0; i < p.d.batch_count; ++i) {
    const i64 offset = i * p.desc.alpha_stride;
    const std::vector<T> by =
        alpha.get<T>(frame, "alpha", p.desc.scale, p.m, alpha.vector ? offset : 0);
    const std::vector<T> keep =
        beta.get<T>(frame, "beta", p.desc.scale, p.m, beta.vector ? offset : 0);
    const std::vector<T> one =
        dense<T>(p.a, matrix_of(frame, "A", p.a, a, i, Access::reads), p.op_a);
    const std::vector<T> two =
        dense<T>(p.b, matrix_of(frame, "B", p.b, b, i, Access::reads), p.op_b);
    const bool uses_c = std::any_of(keep.begin(), keep.end(), [](T value) { return value != T{}; });
    std::vector<T> values(static_cast<std::size_t>(p.m * p.n));
    if (uses_c) values = dense<T>(p.c, matrix_of(frame, "C", p.c, c, i, Access::reads), 'N');
    void* to = matrix_of(frame, "D", p.d, d, i, Access::writes);
    // A factor for all rows goes into BLAS's product; factors by row are applied after it.
    const bool apart = alpha.vector || beta.vector;
    std::vector<T> product(apart ? values.size() : 0);
    const T zero{}, whole = apart ? T(1) : (by.empty() ? zero : by[0] * scale_a),
                    kept = apart || keep.empty() ? zero : keep[0] * scale_c;
    const char plain = 'N';
    const i64 lda = std::max<i64>(1, p.m), ldb = std::max<i64>(1, p.k);
    blas<T>("gemm", &plain, &plain, &p.m, &p.n, &p.k, &whole, one.data(), &lda, two.data(), &ldb,
            &kept, apart ? product.data() : values.data(), &lda);
    for (std::size_t at = 0; at < product.size(); ++at) {
      const std::size_t row = at % static_cast<std::size_t>(p.m);
      values[at] =
          by[row] * scale_a * product[at] + (uses_c ? keep[row] * scale_c * values[at] : zero);
    }
    if constexpr (!is_complex<T>) finish(frame, p, values, i);
    if (scale_d != T(1))
      for (T& value : values) value *= scale_d;
    write(p.d, values, to);
    if (p.desc.epilogue & (kBiasGradientA | kBiasGradientB)) {
      const bool of_a = p.desc.epilogue & kBiasGradientA;
      std::vector<T> sums(static_cast<std::size_t>(of_a ? p.m : p.n));
      const std::vector<T>& from = of_a ? one : two;
      for (std::size_t at = 0; at < from.size(); ++at)
        sums[of_a ? at % static_cast<std::size_t>(p.m) : at / static_cast<std::size_t>(p.k)] +=
            from[at];
      leave_sums(frame, p, p.desc.bias, i, sums);
    }
  }
}

constexpr int kOnlyAlgorithm = 0;

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

LT_API cublasLtMatmul(void* handle, const MatmulDesc* desc, const void* alpha, const void* a,
                      const Layout* layout_a, const void* b, const Layout* layout_b,
                      const void* beta, const void* c, const Layout* layout_c, void* d,
                      const Layout* layout_d, const Algorithm*, void*, std::size_t,
                      CUstream stream) {
  return call("cublasLtMatmul", [&] {
    if (!handle) throw Failed{kNotInitialized, "the handle is a null pointer"};
    const Problem p = problem(desc, layout_a, layout_b, layout_c, layout_d);
    const int mode = p.desc.pointer_mode;
    if (mode < kOnHost || mode > kAlphaVectorBetaHost)
      throw Failed{kInvalidValue, "the pointer mode is " + std::to_string(mode)};
    const auto factor = [&](const void* from, const char* argument, bool vector, bool on_device) {
      return on_device ? Factor{&needed(static_cast<const char*>(from), argument), vector, {}}
                       : Factor{nullptr, false, on_host(from, argument, p.desc.scale)};
    };
    const Factor by = factor(alpha, "alpha", mode >= kVectors, mode != kOnHost);
    const Factor keep = mode == kAlphaVector ? Factor{nullptr, false, {}}
                                             : factor(beta, "beta", mode == kVectors,
                                                      mode == kOnDevice || mode == kVectors);
    if (!p.m || !p.n) return;
    std::string shape = sizes({{"m", p.m}, {"n", p.n}, {"k", p.k}});
    if (p.d.batch_count > 1) shape += ", " + sizes({{"batch", p.d.batch_count}});
    if (p.desc.epilogue != 1) shape += ", " + sizes({{"epilogue", p.desc.epilogue}});
    enqueue(stream, "cublasLtMatmul", shape, [=](Frame& frame) {
      with_computed(p.type, [&](auto one) { run<decltype(one)>(frame, p, by, a, b, keep, c, d); });
    });
  });
}

namespace {

Heuristic only_algorithm() {
  Heuristic made{};
  made.state = kSuccess;
  made.waves = 1;
  return made;
}

}  // namespace

LT_API cublasLtMatmulAlgoGetHeuristic(void*, const MatmulDesc* desc, const Layout* a,
                                      const Layout* b, const Layout* c, const Layout* d,
                                      const Preference*, int requested, Heuristic* results,
                                      int* count) {
  return call("cublasLtMatmulAlgoGetHeuristic", [&] {
    needed(count, "returnAlgoCount") = 0;
    at_least(requested, 1, "requestedAlgoCount", kInvalidValue);
    problem(desc, a, b, c, d);
    needed(results, "heuristicResultsArray") = only_algorithm();
    *count = 1;
  });
}

LT_API cublasLtMatmulAlgoCheck(void*, const MatmulDesc* desc, const Layout* a, const Layout* b,
                               const Layout* c, const Layout* d, const Algorithm*,
                               Heuristic* result) {
  return call("cublasLtMatmulAlgoCheck", [&] {
    problem(desc, a, b, c, d);
    if (result) *result = only_algorithm();
  });
}

LT_API cublasLtMatmulAlgoGetIds(void*, int compute, int, int a, int b, int, int d, int requested,
                                int* ids, int* count) {
  return call("cublasLtMatmulAlgoGetIds", [&] {
    needed(count, "returnAlgoCount") = 0;
    at_least(requested, 1, "requestedAlgoCount", kInvalidValue);
    computed_in(compute, a, b, d, kNotSupported);
    needed(ids, "algoIdsArray") = kOnlyAlgorithm;
    *count = 1;
  });
}

LT_API cublasLtMatmulAlgoInit(void*, int compute, int, int a, int b, int, int d, int id,
                              Algorithm* algorithm) {
  return call("cublasLtMatmulAlgoInit", [&] {
    computed_in(compute, a, b, d, kNotSupported);
    if (id != kOnlyAlgorithm) throw Failed{kInvalidValue, "the one algorithm here is number 0"};
    needed(algorithm, "algo") = {};
  });
}
