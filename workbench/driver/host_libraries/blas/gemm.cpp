// C = alpha * op(A) * op(B) + beta * C for one triple of matrices, and for batches given by arrays
// of pointers or by strides.
#include "../products.hpp"
#include "cublas.hpp"

namespace workbench::host {
namespace {

// One matrix, or the matrices of a batch.
template <class Pointer>
struct Batch {
  const char* argument;
  Pointer base;                    // the first matrix
  const Pointer* array = nullptr;  // on the device
  i64 stride = 0;                  // elements from one to the next
  int type = 0;
  i64 leading = 1;
};
using Inputs = Batch<const void*>;
using Outputs = Batch<void*>;

// The device address of the `index`-th of `count` matrices, and its name in messages.
template <class Pointer>
Pointer address_of(Frame& frame, const Batch<Pointer>& batch, i64 index, i64 count) {
  if (batch.array)
    return frame.vector(std::string(batch.argument) + "array", batch.array, count)[index];
  if (!batch.base) return nullptr;
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Byte*>(batch.base) +
         index * batch.stride * static_cast<i64>(bytes_of(batch.type));
}

template <class Pointer>
std::string named(const Batch<Pointer>& batch, i64 index, i64 count) {
  return count == 1 ? batch.argument : batch.argument + ("[" + std::to_string(index)) + "]";
}

struct Product {
  char op_a, op_b;
  i64 m, n, k, count;
  Inputs a, b;
  Outputs c;
};

template <class T>
void run(Frame& frame, const Product& p, T alpha, T beta) {
  const bool uses = alpha != T{} && p.k > 0;
  const i64 rows_a = p.op_a == 'N' ? p.m : p.k, rows_b = p.op_b == 'N' ? p.k : p.n;
  const i64 columns_a = p.op_a == 'N' ? p.k : p.m, columns_b = p.op_b == 'N' ? p.n : p.k;
  const auto given = [&](const Inputs& one, i64 i, i64 rows, i64 columns) {
    const void* here =
        uses ? frame.range(named(one, i, p.count), address_of(frame, one, i, p.count),
                           bytes_of(one.type), rows, columns, one.leading, Access::reads)
             : nullptr;
    return here ? Given{one.type, here, rows, columns, one.leading}
                : Given{code_of<T>(), nullptr, rows, columns, one.leading};
  };
  for (i64 i = 0; i < p.count; ++i) {
    const Given a = given(p.a, i, rows_a, columns_a), b = given(p.b, i, rows_b, columns_b);
    void* to =
        frame.range(named(p.c, i, p.count), address_of(frame, p.c, i, p.count), bytes_of(p.c.type),
                    p.m, p.n, p.c.leading, beta == T{} ? Access::writes : Access::updates);
    multiply<T>(p.op_a, p.op_b, p.k, uses ? alpha : T{}, a, b, beta,
                Result{p.c.type, to, p.m, p.n, p.c.leading});
  }
}

int gemm(const char* name, Handle* handle, int op_a, int op_b, i64 m, i64 n, i64 k,
         const void* alpha, const Inputs& a, const Inputs& b, const void* beta, const Outputs& c,
         i64 count, int compute) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Product product{
        operation(op_a, "transa"), operation(op_b, "transb"), m, n, k, count, a, b, c};
    need_sizes({{"m", m}, {"n", n}, {"k", k}, {"batchCount", count}});
    need_stride(a.leading, product.op_a == 'N' ? m : k, "lda");
    need_stride(b.leading, product.op_b == 'N' ? k : n, "ldb");
    need_stride(c.leading, m, "ldc");
    const Computed computed = computed_in(compute, a.type, b.type, c.type, kNotSupported);
    if (!m || !n || !count) return;
    with_type(computed.scale, "the scale", kNotSupported, [&](auto scale) {
      using Scale = decltype(scale);
      const Scalar<Scale> by(own, static_cast<const Scale*>(alpha), "alpha");
      const Scalar<Scale> keep(own, static_cast<const Scale*>(beta), "beta");
      std::string shape = sizes({{"m", m}, {"n", n}, {"k", k}});
      if (count > 1) shape += ", " + sizes({{"batch", count}});
      enqueue(own.stream, name, shape, [=, type = computed.type](Frame& frame) {
        const Scale factor = by.get(frame), kept = keep.get(frame);
        with_computed(type, [&](auto one) {
          using T = decltype(one);
          run<T>(frame, product, converted<T>(factor), converted<T>(kept));
        });
      });
    });
  });
}

template <class T>
constexpr int compute_of() {
  return std::is_same_v<T, Half> ? 64 : std::is_same_v<Real<T>, double> ? 70 : 68;
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define GEMM(letter, T, I, suffix)                                                                \
  CUBLAS_API cublas##letter##gemm##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,      \
                                          const T* alpha, const T* a, I lda, const T* b, I ldb,   \
                                          const T* beta, T* c, I ldc) {                           \
    return gemm("cublas" #letter "gemm", handle, op_a, op_b, m, n, k, alpha,                      \
                {"A", a, nullptr, 0, code_of<T>(), lda}, {"B", b, nullptr, 0, code_of<T>(), ldb}, \
                beta, {"C", c, nullptr, 0, code_of<T>(), ldc}, 1, compute_of<T>());               \
  }
#define GEMM_BATCHED(letter, T, I, suffix)                                                        \
  CUBLAS_API cublas##letter##gemmBatched##suffix(                                                 \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const T* alpha, const void* const* a,    \
      I lda, const void* const* b, I ldb, const T* beta, void* const* c, I ldc, I count) {        \
    return gemm("cublas" #letter "gemmBatched", handle, op_a, op_b, m, n, k, alpha,               \
                {"A", nullptr, a, 0, code_of<T>(), lda}, {"B", nullptr, b, 0, code_of<T>(), ldb}, \
                beta, {"C", nullptr, c, 0, code_of<T>(), ldc}, count, compute_of<T>());           \
  }
#define GEMM_STRIDED(letter, T, I, suffix)                                                   \
  CUBLAS_API cublas##letter##gemmStridedBatched##suffix(                                     \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const T* alpha, const T* a, I lda,  \
      long long stride_a, const T* b, I ldb, long long stride_b, const T* beta, T* c, I ldc, \
      long long stride_c, I count) {                                                         \
    return gemm("cublas" #letter "gemmStridedBatched", handle, op_a, op_b, m, n, k, alpha,   \
                {"A", a, nullptr, stride_a, code_of<T>(), lda},                              \
                {"B", b, nullptr, stride_b, code_of<T>(), ldb}, beta,                        \
                {"C", c, nullptr, stride_c, code_of<T>(), ldc}, count, compute_of<T>());     \
  }
ALL_TYPES(GEMM, _v2)
BOTH_INTEGERS(GEMM, H, Half, )
ALL_TYPES(GEMM_BATCHED, )
BOTH_INTEGERS(GEMM_BATCHED, H, Half, )
ALL_TYPES(GEMM_STRIDED, )
BOTH_INTEGERS(GEMM_STRIDED, H, Half, )

// On a GPU these use three real products instead of four; here they are the plain routines.
#define GEMM_3M(letter, T, I, suffix)                                                             \
  CUBLAS_API cublas##letter##gemm3m##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,    \
                                            const T* alpha, const T* a, I lda, const T* b, I ldb, \
                                            const T* beta, T* c, I ldc) {                         \
    return gemm("cublas" #letter "gemm3m", handle, op_a, op_b, m, n, k, alpha,                    \
                {"A", a, nullptr, 0, code_of<T>(), lda}, {"B", b, nullptr, 0, code_of<T>(), ldb}, \
                beta, {"C", c, nullptr, 0, code_of<T>(), ldc}, 1, compute_of<T>());               \
  }
COMPLEX_TYPES(GEMM_3M, )

#define GEMM_3M_BATCHED(letter, T, I, suffix)                                                      \
  CUBLAS_API cublas##letter##gemm3mBatched##suffix(                                                \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const T* alpha, const void* const* a,     \
      I lda, const void* const* b, I ldb, const T* beta, void* const* c, I ldc, I count) {         \
    return cublas##letter##gemmBatched##suffix(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, \
                                               beta, c, ldc, count);                               \
  }                                                                                                \
  CUBLAS_API cublas##letter##gemm3mStridedBatched##suffix(                                         \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const T* alpha, const T* a, I lda,        \
      long long stride_a, const T* b, I ldb, long long stride_b, const T* beta, T* c, I ldc,       \
      long long stride_c, I count) {                                                               \
    return cublas##letter##gemmStridedBatched##suffix(handle, op_a, op_b, m, n, k, alpha, a, lda,  \
                                                      stride_a, b, ldb, stride_b, beta, c, ldc,    \
                                                      stride_c, count);                            \
  }
BOTH_INTEGERS(GEMM_3M_BATCHED, C, Complex, )

// ---- matrices whose types come with the call ----

#define GEMM_EX(I, suffix)                                                                         \
  CUBLAS_API cublasGemmEx##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,               \
                                  const void* alpha, const void* a, int type_a, I lda,             \
                                  const void* b, int type_b, I ldb, const void* beta, void* c,     \
                                  int type_c, I ldc, int compute, int) {                           \
    return gemm("cublasGemmEx", handle, op_a, op_b, m, n, k, alpha,                                \
                {"A", a, nullptr, 0, type_a, lda}, {"B", b, nullptr, 0, type_b, ldb}, beta,        \
                {"C", c, nullptr, 0, type_c, ldc}, 1, compute);                                    \
  }                                                                                                \
  CUBLAS_API cublasGemmBatchedEx##suffix(                                                          \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const void* alpha, const void* const* a,  \
      int type_a, I lda, const void* const* b, int type_b, I ldb, const void* beta,                \
      void* const* c, int type_c, I ldc, I count, int compute, int) {                              \
    return gemm("cublasGemmBatchedEx", handle, op_a, op_b, m, n, k, alpha,                         \
                {"A", nullptr, a, 0, type_a, lda}, {"B", nullptr, b, 0, type_b, ldb}, beta,        \
                {"C", nullptr, c, 0, type_c, ldc}, count, compute);                                \
  }                                                                                                \
  CUBLAS_API cublasGemmStridedBatchedEx##suffix(                                                   \
      Handle* handle, int op_a, int op_b, I m, I n, I k, const void* alpha, const void* a,         \
      int type_a, I lda, long long stride_a, const void* b, int type_b, I ldb, long long stride_b, \
      const void* beta, void* c, int type_c, I ldc, long long stride_c, I count, int compute,      \
      int) {                                                                                       \
    return gemm("cublasGemmStridedBatchedEx", handle, op_a, op_b, m, n, k, alpha,                  \
                {"A", a, nullptr, stride_a, type_a, lda},                                          \
                {"B", b, nullptr, stride_b, type_b, ldb}, beta,                                    \
                {"C", c, nullptr, stride_c, type_c, ldc}, count, compute);                         \
  }                                                                                                \
  CUBLAS_API cublasSgemmEx##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,              \
                                   const float* alpha, const void* a, int type_a, I lda,           \
                                   const void* b, int type_b, I ldb, const float* beta, void* c,   \
                                   int type_c, I ldc) {                                            \
    return gemm("cublasSgemmEx", handle, op_a, op_b, m, n, k, alpha,                               \
                {"A", a, nullptr, 0, type_a, lda}, {"B", b, nullptr, 0, type_b, ldb}, beta,        \
                {"C", c, nullptr, 0, type_c, ldc}, 1, compute_of<float>());                        \
  }                                                                                                \
  CUBLAS_API cublasCgemmEx##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,              \
                                   const Complex* alpha, const void* a, int type_a, I lda,         \
                                   const void* b, int type_b, I ldb, const Complex* beta, void* c, \
                                   int type_c, I ldc) {                                            \
    return gemm("cublasCgemmEx", handle, op_a, op_b, m, n, k, alpha,                               \
                {"A", a, nullptr, 0, type_a, lda}, {"B", b, nullptr, 0, type_b, ldb}, beta,        \
                {"C", c, nullptr, 0, type_c, ldc}, 1, compute_of<Complex>());                      \
  }                                                                                                \
  CUBLAS_API cublasCgemm3mEx##suffix(Handle* handle, int op_a, int op_b, I m, I n, I k,            \
                                     const Complex* alpha, const void* a, int type_a, I lda,       \
                                     const void* b, int type_b, I ldb, const Complex* beta,        \
                                     void* c, int type_c, I ldc) {                                 \
    return cublasCgemmEx##suffix(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b,    \
                                 ldb, beta, c, type_c, ldc);                                       \
  }
GEMM_EX(int, )
GEMM_EX(std::int64_t, _64)
