// Products and solutions with a symmetric, Hermitian or triangular matrix.
#include <vector>

#include "cublas.hpp"

namespace workbench::host {
namespace {

// symm and hemm: C = alpha * A * B + beta * C, or B * A.
template <class T>
int symm(const char* name, const char* routine, Handle* handle, int on, int uplo, i64 m, i64 n,
         const T* alpha, const T* a, i64 lda, const T* b, i64 ldb, const T* beta, T* c, i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char left = side(on), part = fill(uplo);
    const i64 order = left == 'L' ? m : n;
    need_sizes({{"m", m}, {"n", n}});
    need_stride(lda, order, "lda");
    need_stride(ldb, m, "ldb");
    need_stride(ldc, m, "ldc");
    if (!m || !n) return;
    enqueue(
        own.stream, name, sizes({{"m", m}, {"n", n}}),
        [=, by = Scalar<T>(own, alpha, "alpha"),
         keep = Scalar<T>(own, beta, "beta")](Frame& frame) {
          const T factor = by.get(frame), kept = keep.get(frame);
          const T* one = frame.matrix("A", a, order, order, lda);
          const T* two = frame.matrix("B", b, m, n, ldb);
          T* to = frame.matrix("C", c, m, n, ldc, kept == T{} ? Access::writes : Access::updates);
          blas<T>(routine, &left, &part, &m, &n, &factor, one, &lda, two, &ldb, &kept, to, &ldc);
        });
  });
}

// The shape of A, which is [n, k] or transposed.
struct Factors {
  char part, op;
  i64 n, k, rows, columns;
};

// Parses the shape. The second factor is transposed; for a Hermitian result it is also conjugated.
template <class T>
Factors factors(int uplo, int trans, i64 n, i64 k, bool hermitian) {
  const char op = operation(trans, "trans");
  need_sizes({{"n", n}, {"k", k}});
  if (hermitian ? op == 'T' : is_complex<T> && op == 'C')
    throw Failed{kInvalidValue, std::string("trans is CUBLAS_OP_") + op + ", allowed are _N and " +
                                    (hermitian ? "_C" : "_T")};
  return {fill(uplo), op, n, k, op == 'N' ? n : k, op == 'N' ? k : n};
}

// syrk and herk (whose scalars are real): a triangle of C = alpha * A * A^T + beta * C.
template <class T, class Factor>
int syrk(const char* name, const char* routine, Handle* handle, int uplo, int trans, i64 n, i64 k,
         const Factor* alpha, const T* a, i64 lda, const Factor* beta, T* c, i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Factors f = factors<T>(uplo, trans, n, k, routine[0] == 'h');
    need_stride(lda, f.rows, "lda");
    need_stride(ldc, n, "ldc");
    if (!n) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"k", k}}),
            [=, by = Scalar<Factor>(own, alpha, "alpha"),
             keep = Scalar<Factor>(own, beta, "beta")](Frame& frame) {
              const Factor factor = by.get(frame), kept = keep.get(frame);
              const T* from = frame.matrix("A", a, f.rows, f.columns, lda);
              T* to = frame.matrix("C", c, f.n, f.n, ldc);
              blas<T>(routine, &f.part, &f.op, &f.n, &f.k, &factor, from, &lda, &kept, to, &ldc);
            });
  });
}

// syr2k and her2k; `beta` is real for the latter.
template <class T, class Kept>
int syr2k(const char* name, const char* routine, Handle* handle, int uplo, int trans, i64 n, i64 k,
          const T* alpha, const T* a, i64 lda, const T* b, i64 ldb, const Kept* beta, T* c,
          i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Factors f = factors<T>(uplo, trans, n, k, routine[0] == 'h');
    need_stride(lda, f.rows, "lda");
    need_stride(ldb, f.rows, "ldb");
    need_stride(ldc, n, "ldc");
    if (!n) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"k", k}}),
            [=, by = Scalar<T>(own, alpha, "alpha"),
             keep = Scalar<Kept>(own, beta, "beta")](Frame& frame) {
              const T factor = by.get(frame);
              const Kept kept = keep.get(frame);
              const T* one = frame.matrix("A", a, f.rows, f.columns, lda);
              const T* two = frame.matrix("B", b, f.rows, f.columns, ldb);
              T* to = frame.matrix("C", c, f.n, f.n, ldc);
              blas<T>(routine, &f.part, &f.op, &f.n, &f.k, &factor, one, &lda, two, &ldb, &kept, to,
                      &ldc);
            });
  });
}

// syrkx and herkx: a triangle of alpha * A * B^T + beta * C, which the caller knows to be
// symmetric.
template <class T, class Kept>
int syrkx(const char* name, Handle* handle, int uplo, int trans, i64 n, i64 k, const T* alpha,
          const T* a, i64 lda, const T* b, i64 ldb, const Kept* beta, T* c, i64 ldc) {
  constexpr bool hermitian = !std::is_same_v<T, Kept>;
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Factors f = factors<T>(uplo, trans, n, k, hermitian);
    need_stride(lda, f.rows, "lda");
    need_stride(ldb, f.rows, "ldb");
    need_stride(ldc, n, "ldc");
    if (!n) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"k", k}}),
            [=, by = Scalar<T>(own, alpha, "alpha"),
             keep = Scalar<Kept>(own, beta, "beta")](Frame& frame) {
              const T factor = by.get(frame), kept = T(keep.get(frame));
              const T* one = frame.matrix("A", a, f.rows, f.columns, lda);
              const T* two = frame.matrix("B", b, f.rows, f.columns, ldb);
              T* to = frame.matrix("C", c, f.n, f.n, ldc);
              const char turned = hermitian ? 'C' : 'T', plain = 'N';
              const char first = f.op == 'N' ? plain : turned,
                         second = f.op == 'N' ? turned : plain;
              blas<T>("gemmt", &f.part, &first, &second, &f.n, &f.k, &factor, one, &lda, two, &ldb,
                      &kept, to, &ldc);
              if constexpr (hermitian)
                for (i64 i = 0; i < f.n; ++i) to[i * ldc + i] = to[i * ldc + i].real();
            });
  });
}

struct Triangle {
  char left, part, op, unit;
  i64 m, n, order;
};

Triangle triangle(int on, int uplo, int trans, int diag, i64 m, i64 n, i64 lda, i64 ldb) {
  const char left = side(on);
  need_sizes({{"m", m}, {"n", n}});
  const i64 order = left == 'L' ? m : n;
  need_stride(lda, order, "lda");
  need_stride(ldb, m, "ldb");
  return {left, fill(uplo), operation(trans, "trans"), diagonal(diag), m, n, order};
}

// C = alpha * op(A) * B. BLAS multiplies in place, so B is copied to C first.
template <class T>
int trmm(const char* name, Handle* handle, int on, int uplo, int trans, int diag, i64 m, i64 n,
         const T* alpha, const T* a, i64 lda, const T* b, i64 ldb, T* c, i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Triangle t = triangle(on, uplo, trans, diag, m, n, lda, ldb);
    need_stride(ldc, m, "ldc");
    if (!m || !n) return;
    enqueue(own.stream, name, sizes({{"m", m}, {"n", n}}),
            [=, by = Scalar<T>(own, alpha, "alpha")](Frame& frame) {
              const T factor = by.get(frame);
              const T* matrix = frame.matrix("A", a, t.order, t.order, lda);
              const T* from = frame.matrix("B", b, t.m, t.n, ldb);
              T* to = frame.matrix("C", c, t.m, t.n, ldc, Access::writes);
              if (from != to)
                for (i64 column = 0; column < t.n; ++column)
                  std::copy_n(from + column * ldb, t.m, to + column * ldc);
              blas<T>("trmm", &t.left, &t.part, &t.op, &t.unit, &t.m, &t.n, &factor, matrix, &lda,
                      to, &ldc);
            });
  });
}

// Solves op(A) * X = alpha * B in place of B, for one B or for `count` by arrays of pointers.
template <class T>
int trsm(const char* name, Handle* handle, int on, int uplo, int trans, int diag, i64 m, i64 n,
         const T* alpha, const T* a, const T* const* many_a, i64 lda, T* b, T* const* many_b,
         i64 ldb, i64 count) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const Triangle t = triangle(on, uplo, trans, diag, m, n, lda, ldb);
    at_least(count, 0, "batchCount", kInvalidValue);
    if (!m || !n || !count) return;
    std::string shape = sizes({{"m", m}, {"n", n}});
    if (many_a) shape += ", " + sizes({{"batch", count}});
    enqueue(own.stream, name, shape, [=, by = Scalar<T>(own, alpha, "alpha")](Frame& frame) {
      const T factor = by.get(frame);
      const T* const* all_a = many_a ? frame.vector("A", many_a, count) : &a;
      T* const* all_b = many_b ? frame.vector("B", many_b, count) : &b;
      for (i64 i = 0; i < count; ++i) {
        const std::string which = many_a ? "[" + std::to_string(i) + "]" : "";
        const T* matrix = frame.matrix("A" + which, all_a[i], t.order, t.order, lda);
        T* to = frame.matrix("B" + which, all_b[i], t.m, t.n, ldb);
        blas<T>("trsm", &t.left, &t.part, &t.op, &t.unit, &t.m, &t.n, &factor, matrix, &lda, to,
                &ldb);
      }
    });
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define SYMM(L, T, I, S, name)                                                                     \
  CUBLAS_API cublas##L##name##S(Handle* h, int on, int uplo, I m, I n, const T* alpha, const T* a, \
                                I lda, const T* b, I ldb, const T* beta, T* c, I ldc) {            \
    return symm("cublas" #L#name, #name, h, on, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);  \
  }
#define SYRK(L, T, I, S, name, Factor)                                                         \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, I n, I k, const Factor* alpha, \
                                const T* a, I lda, const Factor* beta, T* c, I ldc) {          \
    return syrk("cublas" #L#name, #name, h, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);   \
  }
#define SYR2K(L, T, I, S, name, Kept)                                                           \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, I n, I k, const T* alpha,       \
                                const T* a, I lda, const T* b, I ldb, const Kept* beta, T* c,   \
                                I ldc) {                                                        \
    return syr2k("cublas" #L#name, #name, h, uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, \
                 ldc);                                                                          \
  }
#define SYRKX(L, T, I, S, name, Kept)                                                          \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, I n, I k, const T* alpha,      \
                                const T* a, I lda, const T* b, I ldb, const Kept* beta, T* c,  \
                                I ldc) {                                                       \
    return syrkx("cublas" #L#name, h, uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc); \
  }
#define TRIANGULAR(L, T, I, S)                                                                    \
  CUBLAS_API cublas##L##trmm##S(Handle* h, int on, int uplo, int trans, int diag, I m, I n,       \
                                const T* alpha, const T* a, I lda, const T* b, I ldb, T* c,       \
                                I ldc) {                                                          \
    return trmm("cublas" #L "trmm", h, on, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, c,     \
                ldc);                                                                             \
  }                                                                                               \
  CUBLAS_API cublas##L##trsm##S(Handle* h, int on, int uplo, int trans, int diag, I m, I n,       \
                                const T* alpha, const T* a, I lda, T* b, I ldb) {                 \
    return trsm<T>("cublas" #L "trsm", h, on, uplo, trans, diag, m, n, alpha, a, nullptr, lda, b, \
                   nullptr, ldb, 1);                                                              \
  }
#define FULL(L, T, I, S) \
  SYMM(L, T, I, S, symm) \
  SYRK(L, T, I, S, syrk, T) SYR2K(L, T, I, S, syr2k, T) TRIANGULAR(L, T, I, S)
#define HERMITIAN(L, T, I, S) \
  SYMM(L, T, I, S, hemm) SYRK(L, T, I, S, herk, Real<T>) SYR2K(L, T, I, S, her2k, Real<T>)
#define EXTENDED(L, T, I, S)                                                                       \
  SYRKX(L, T, I, S, syrkx, T)                                                                      \
  CUBLAS_API cublas##L##trsmBatched##S(Handle* h, int on, int uplo, int trans, int diag, I m, I n, \
                                       const T* alpha, const T* const* a, I lda, T* const* b,      \
                                       I ldb, I count) {                                           \
    return trsm<T>("cublas" #L "trsmBatched", h, on, uplo, trans, diag, m, n, alpha, nullptr, a,   \
                   lda, nullptr, b, ldb, count);                                                   \
  }
#define HERMITIAN_EXTENDED(L, T, I, S) SYRKX(L, T, I, S, herkx, Real<T>)
ALL_TYPES(FULL, _v2)
COMPLEX_TYPES(HERMITIAN, _v2)
ALL_TYPES(EXTENDED, )
COMPLEX_TYPES(HERMITIAN_EXTENDED, )
