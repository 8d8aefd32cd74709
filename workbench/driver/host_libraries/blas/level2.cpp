// Routines on a matrix and vectors. A matrix is full, banded or packed; its Extent says which
// elements the routine may touch.
#include "cublas.hpp"

namespace workbench::host {
namespace {

// The memory of a matrix: `columns` runs of `rows` elements, `stride` elements apart.
struct Extent {
  i64 rows, columns, stride;
};

template <class T>
const T* given(Frame& frame, const char* name, const T* matrix, const Extent& extent) {
  return frame.matrix(name, matrix, extent.rows, extent.columns, extent.stride);
}

// y = alpha * A * x + beta * y; `run` calls the routine with addresses on the host.
template <class T, class Run>
void product(const Handle& own, const char* name, const std::string& shape, const T* alpha,
             const T* a, const char* a_name, Extent extent, const T* x, i64 x_count, i64 incx,
             const T* beta, T* y, i64 y_count, i64 incy, Run&& run) {
  need_increment(incx, "incx");
  need_increment(incy, "incy");
  if (!x_count && !y_count) return;
  enqueue(
      own.stream, name, shape,
      [=, by = Scalar<T>(own, alpha, "alpha"), keep = Scalar<T>(own, beta, "beta")](Frame& frame) {
        const T factor = by.get(frame), kept = keep.get(frame);
        const T* matrix = given(frame, a_name, a, extent);
        const T* from = frame.vector("x", x, x_count, incx);
        T* to = frame.vector("y", y, y_count, incy, kept == T{} ? Access::writes : Access::updates);
        if (y_count) run(factor, matrix, from, kept, to);
      });
}

template <class T>
int gemv(const char* name, Handle* handle, int trans, i64 m, i64 n, const T* alpha, const T* a,
         i64 lda, const T* x, i64 incx, const T* beta, T* y, i64 incy) {
  return call(name, [&] {
    const char op = operation(trans, "trans");
    need_sizes({{"m", m}, {"n", n}});
    need_stride(lda, m, "lda");
    if (!m || !n) return;
    product(checked(handle), name, sizes({{"m", m}, {"n", n}}), alpha, a, "A", {m, n, lda}, x,
            op == 'N' ? n : m, incx, beta, y, op == 'N' ? m : n, incy,
            [=](T by, const T* matrix, const T* from, T keep, T* to) {
              blas<T>("gemv", &op, &m, &n, &by, matrix, &lda, from, &incx, &keep, to, &incy);
            });
  });
}

template <class T>
int gbmv(const char* name, Handle* handle, int trans, i64 m, i64 n, i64 kl, i64 ku, const T* alpha,
         const T* a, i64 lda, const T* x, i64 incx, const T* beta, T* y, i64 incy) {
  return call(name, [&] {
    const char op = operation(trans, "trans");
    need_sizes({{"m", m}, {"n", n}, {"kl", kl}, {"ku", ku}});
    need_stride(lda, kl + ku + 1, "lda");
    if (!m || !n) return;
    product(checked(handle), name, sizes({{"m", m}, {"n", n}, {"kl", kl}, {"ku", ku}}), alpha, a,
            "A", {kl + ku + 1, n, lda}, x, op == 'N' ? n : m, incx, beta, y, op == 'N' ? m : n,
            incy, [=](T by, const T* matrix, const T* from, T keep, T* to) {
              blas<T>("gbmv", &op, &m, &n, &kl, &ku, &by, matrix, &lda, from, &incx, &keep, to,
                      &incy);
            });
  });
}

// symv and hemv.
template <class T>
int symv(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const T* alpha,
         const T* a, i64 lda, const T* x, i64 incx, const T* beta, T* y, i64 incy) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    need_stride(lda, n, "lda");
    product(checked(handle), name, sizes({{"n", n}}), alpha, a, "A", {n, n, lda}, x, n, incx, beta,
            y, n, incy, [=](T by, const T* matrix, const T* from, T keep, T* to) {
              blas<T>(routine, &part, &n, &by, matrix, &lda, from, &incx, &keep, to, &incy);
            });
  });
}

// sbmv and hbmv.
template <class T>
int sbmv(const char* name, const char* routine, Handle* handle, int uplo, i64 n, i64 k,
         const T* alpha, const T* a, i64 lda, const T* x, i64 incx, const T* beta, T* y, i64 incy) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}, {"k", k}});
    need_stride(lda, k + 1, "lda");
    product(checked(handle), name, sizes({{"n", n}, {"k", k}}), alpha, a, "A", {k + 1, n, lda}, x,
            n, incx, beta, y, n, incy, [=](T by, const T* matrix, const T* from, T keep, T* to) {
              blas<T>(routine, &part, &n, &k, &by, matrix, &lda, from, &incx, &keep, to, &incy);
            });
  });
}

// spmv and hpmv.
template <class T>
int spmv(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const T* alpha,
         const T* ap, const T* x, i64 incx, const T* beta, T* y, i64 incy) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    product(checked(handle), name, sizes({{"n", n}}), alpha, ap, "AP", {packed(n), 1, 1}, x, n,
            incx, beta, y, n, incy, [=](T by, const T* matrix, const T* from, T keep, T* to) {
              blas<T>(routine, &part, &n, &by, matrix, from, &incx, &keep, to, &incy);
            });
  });
}

// Triangular matrices: multiplies with x or solves for it, in place.
template <class T, class Run>
void triangular(const Handle& own, const char* name, const std::string& shape, const T* a,
                const char* a_name, Extent extent, T* x, i64 n, i64 incx, Run&& run) {
  need_sizes({{"n", n}});
  need_increment(incx, "incx");
  if (!n) return;
  enqueue(own.stream, name, shape, [=](Frame& frame) {
    const T* matrix = given(frame, a_name, a, extent);
    run(matrix, frame.vector("x", x, n, incx));
  });
}

template <class T>
int trmv(const char* name, const char* routine, Handle* handle, int uplo, int trans, int diag,
         i64 n, const T* a, i64 lda, T* x, i64 incx) {
  return call(name, [&] {
    const char part = fill(uplo), op = operation(trans, "trans"), unit = diagonal(diag);
    need_stride(lda, n, "lda");
    triangular(checked(handle), name, sizes({{"n", n}}), a, "A", {n, n, lda}, x, n, incx,
               [=](const T* matrix, T* to) {
                 blas<T>(routine, &part, &op, &unit, &n, matrix, &lda, to, &incx);
               });
  });
}

template <class T>
int tbmv(const char* name, const char* routine, Handle* handle, int uplo, int trans, int diag,
         i64 n, i64 k, const T* a, i64 lda, T* x, i64 incx) {
  return call(name, [&] {
    const char part = fill(uplo), op = operation(trans, "trans"), unit = diagonal(diag);
    need_sizes({{"k", k}});
    need_stride(lda, k + 1, "lda");
    triangular(checked(handle), name, sizes({{"n", n}, {"k", k}}), a, "A", {k + 1, n, lda}, x, n,
               incx, [=](const T* matrix, T* to) {
                 blas<T>(routine, &part, &op, &unit, &n, &k, matrix, &lda, to, &incx);
               });
  });
}

template <class T>
int tpmv(const char* name, const char* routine, Handle* handle, int uplo, int trans, int diag,
         i64 n, const T* ap, T* x, i64 incx) {
  return call(name, [&] {
    const char part = fill(uplo), op = operation(trans, "trans"), unit = diagonal(diag);
    triangular(checked(handle), name, sizes({{"n", n}}), ap, "AP", {packed(n), 1, 1}, x, n, incx,
               [=](const T* matrix, T* to) {
                 blas<T>(routine, &part, &op, &unit, &n, matrix, to, &incx);
               });
  });
}

// A += alpha * x * y^T and its variants; y is absent in those of one vector.
template <class T, class Factor, class Run>
void update(const Handle& own, const char* name, const std::string& shape, const Factor* alpha,
            const T* x, i64 x_count, i64 incx, const T* y, i64 y_count, i64 incy, T* a,
            const char* a_name, Extent extent, Run&& run) {
  need_increment(incx, "incx");
  need_increment(incy, "incy");
  if (!extent.rows || !extent.columns) return;
  enqueue(own.stream, name, shape, [=, by = Scalar<Factor>(own, alpha, "alpha")](Frame& frame) {
    const Factor factor = by.get(frame);
    const T* one = frame.vector("x", x, x_count, incx);
    const T* two = frame.vector("y", y, y_count, incy);
    run(factor, one, two, frame.matrix(a_name, a, extent.rows, extent.columns, extent.stride));
  });
}

// ger, geru and gerc.
template <class T>
int ger(const char* name, const char* routine, Handle* handle, i64 m, i64 n, const T* alpha,
        const T* x, i64 incx, const T* y, i64 incy, T* a, i64 lda) {
  return call(name, [&] {
    need_sizes({{"m", m}, {"n", n}});
    need_stride(lda, m, "lda");
    update(checked(handle), name, sizes({{"m", m}, {"n", n}}), alpha, x, m, incx, y, n, incy, a,
           "A", {m, n, lda}, [=](T by, const T* one, const T* two, T* to) {
             blas<T>(routine, &m, &n, &by, one, &incx, two, &incy, to, &lda);
           });
  });
}

// syr and her, whose alpha is real.
template <class T, class Factor>
int syr(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const Factor* alpha,
        const T* x, i64 incx, T* a, i64 lda) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    need_stride(lda, n, "lda");
    update(checked(handle), name, sizes({{"n", n}}), alpha, x, n, incx,
           static_cast<const T*>(nullptr), 0, 1, a, "A", {n, n, lda},
           [=](Factor by, const T* one, const T*, T* to) {
             blas<T>(routine, &part, &n, &by, one, &incx, to, &lda);
           });
  });
}

// spr and hpr.
template <class T, class Factor>
int spr(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const Factor* alpha,
        const T* x, i64 incx, T* ap) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    update(checked(handle), name, sizes({{"n", n}}), alpha, x, n, incx,
           static_cast<const T*>(nullptr), 0, 1, ap, "AP", {packed(n), 1, 1},
           [=](Factor by, const T* one, const T*, T* to) {
             blas<T>(routine, &part, &n, &by, one, &incx, to);
           });
  });
}

// syr2 and her2.
template <class T>
int syr2(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const T* alpha,
         const T* x, i64 incx, const T* y, i64 incy, T* a, i64 lda) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    need_stride(lda, n, "lda");
    update(checked(handle), name, sizes({{"n", n}}), alpha, x, n, incx, y, n, incy, a, "A",
           {n, n, lda}, [=](T by, const T* one, const T* two, T* to) {
             blas<T>(routine, &part, &n, &by, one, &incx, two, &incy, to, &lda);
           });
  });
}

// spr2 and hpr2.
template <class T>
int spr2(const char* name, const char* routine, Handle* handle, int uplo, i64 n, const T* alpha,
         const T* x, i64 incx, const T* y, i64 incy, T* ap) {
  return call(name, [&] {
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    update(checked(handle), name, sizes({{"n", n}}), alpha, x, n, incx, y, n, incy, ap, "AP",
           {packed(n), 1, 1}, [=](T by, const T* one, const T* two, T* to) {
             blas<T>(routine, &part, &n, &by, one, &incx, two, &incy, to);
           });
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define GENERAL(L, T, I, S)                                                                        \
  CUBLAS_API cublas##L##gemv##S(Handle* h, int trans, I m, I n, const T* alpha, const T* a, I lda, \
                                const T* x, I incx, const T* beta, T* y, I incy) {                 \
    return gemv("cublas" #L "gemv", h, trans, m, n, alpha, a, lda, x, incx, beta, y, incy);        \
  }                                                                                                \
  CUBLAS_API cublas##L##gbmv##S(Handle* h, int trans, I m, I n, I kl, I ku, const T* alpha,        \
                                const T* a, I lda, const T* x, I incx, const T* beta, T* y,        \
                                I incy) {                                                          \
    return gbmv("cublas" #L "gbmv", h, trans, m, n, kl, ku, alpha, a, lda, x, incx, beta, y,       \
                incy);                                                                             \
  }
ALL_TYPES(GENERAL, _v2)

// routine(letter, type, integer, suffix, name), for routines that differ only in their name.
#define FULL_PRODUCT(L, T, I, S, name)                                                       \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const T* alpha, const T* a, I lda, \
                                const T* x, I incx, const T* beta, T* y, I incy) {           \
    return symv("cublas" #L#name, #name, h, uplo, n, alpha, a, lda, x, incx, beta, y, incy); \
  }
#define BAND_PRODUCT(L, T, I, S, name)                                                            \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, I k, const T* alpha, const T* a, I lda, \
                                const T* x, I incx, const T* beta, T* y, I incy) {                \
    return sbmv("cublas" #L#name, #name, h, uplo, n, k, alpha, a, lda, x, incx, beta, y, incy);   \
  }
#define PACKED_PRODUCT(L, T, I, S, name)                                                           \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const T* alpha, const T* ap, const T* x, \
                                I incx, const T* beta, T* y, I incy) {                             \
    return spmv("cublas" #L#name, #name, h, uplo, n, alpha, ap, x, incx, beta, y, incy);           \
  }
#define SYMMETRIC(L, T, I, S) FULL_PRODUCT(L, T, I, S, symv)
#define REAL_SYMMETRIC(L, T, I, S) BAND_PRODUCT(L, T, I, S, sbmv) PACKED_PRODUCT(L, T, I, S, spmv)
#define HERMITIAN(L, T, I, S) \
  FULL_PRODUCT(L, T, I, S, hemv) BAND_PRODUCT(L, T, I, S, hbmv) PACKED_PRODUCT(L, T, I, S, hpmv)
ALL_TYPES(SYMMETRIC, _v2)
REAL_TYPES(REAL_SYMMETRIC, _v2)
COMPLEX_TYPES(HERMITIAN, _v2)

#define FULL_TRIANGLE(L, T, I, S, name)                                                           \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, int diag, I n, const T* a, I lda, \
                                T* x, I incx) {                                                   \
    return trmv("cublas" #L#name, #name, h, uplo, trans, diag, n, a, lda, x, incx);               \
  }
#define BAND_TRIANGLE(L, T, I, S, name)                                                         \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, int diag, I n, I k, const T* a, \
                                I lda, T* x, I incx) {                                          \
    return tbmv("cublas" #L#name, #name, h, uplo, trans, diag, n, k, a, lda, x, incx);          \
  }
#define PACKED_TRIANGLE(L, T, I, S, name)                                                         \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, int trans, int diag, I n, const T* ap, T* x, \
                                I incx) {                                                         \
    return tpmv("cublas" #L#name, #name, h, uplo, trans, diag, n, ap, x, incx);                   \
  }
#define TRIANGULAR(L, T, I, S)    \
  FULL_TRIANGLE(L, T, I, S, trmv) \
  FULL_TRIANGLE(L, T, I, S, trsv) \
  BAND_TRIANGLE(L, T, I, S, tbmv) \
  BAND_TRIANGLE(L, T, I, S, tbsv) \
  PACKED_TRIANGLE(L, T, I, S, tpmv) PACKED_TRIANGLE(L, T, I, S, tpsv)
ALL_TYPES(TRIANGULAR, _v2)

#define OUTER(L, T, I, S, name)                                                          \
  CUBLAS_API cublas##L##name##S(Handle* h, I m, I n, const T* alpha, const T* x, I incx, \
                                const T* y, I incy, T* a, I lda) {                       \
    return ger("cublas" #L#name, #name, h, m, n, alpha, x, incx, y, incy, a, lda);       \
  }
#define REAL_OUTER(L, T, I, S) OUTER(L, T, I, S, ger)
#define COMPLEX_OUTER(L, T, I, S) OUTER(L, T, I, S, geru) OUTER(L, T, I, S, gerc)
REAL_TYPES(REAL_OUTER, _v2)
COMPLEX_TYPES(COMPLEX_OUTER, _v2)

#define FULL_UPDATE(L, T, I, S, name, Factor)                                                      \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const Factor* alpha, const T* x, I incx, \
                                T* a, I lda) {                                                     \
    return syr("cublas" #L#name, #name, h, uplo, n, alpha, x, incx, a, lda);                       \
  }
#define PACKED_UPDATE(L, T, I, S, name, Factor)                                                    \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const Factor* alpha, const T* x, I incx, \
                                T* ap) {                                                           \
    return spr("cublas" #L#name, #name, h, uplo, n, alpha, x, incx, ap);                           \
  }
#define FULL_UPDATE_2(L, T, I, S, name)                                                       \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const T* alpha, const T* x, I incx, \
                                const T* y, I incy, T* a, I lda) {                            \
    return syr2("cublas" #L#name, #name, h, uplo, n, alpha, x, incx, y, incy, a, lda);        \
  }
#define PACKED_UPDATE_2(L, T, I, S, name)                                                     \
  CUBLAS_API cublas##L##name##S(Handle* h, int uplo, I n, const T* alpha, const T* x, I incx, \
                                const T* y, I incy, T* ap) {                                  \
    return spr2("cublas" #L#name, #name, h, uplo, n, alpha, x, incx, y, incy, ap);            \
  }
#define SYMMETRIC_UPDATES(L, T, I, S) \
  FULL_UPDATE(L, T, I, S, syr, T) FULL_UPDATE_2(L, T, I, S, syr2)
#define REAL_UPDATES(L, T, I, S) PACKED_UPDATE(L, T, I, S, spr, T) PACKED_UPDATE_2(L, T, I, S, spr2)
#define HERMITIAN_UPDATES(L, T, I, S)   \
  FULL_UPDATE(L, T, I, S, her, Real<T>) \
  FULL_UPDATE_2(L, T, I, S, her2)       \
  PACKED_UPDATE(L, T, I, S, hpr, Real<T>) PACKED_UPDATE_2(L, T, I, S, hpr2)
ALL_TYPES(SYMMETRIC_UPDATES, _v2)
REAL_TYPES(REAL_UPDATES, _v2)
COMPLEX_TYPES(HERMITIAN_UPDATES, _v2)
