// cuBLAS's routines beyond BLAS: sums and scalings of matrices, conversions of triangles, batches
// of matrix-vector products and of small systems of equations.
#include <vector>

#include "cublas.hpp"

namespace workbench::host {
namespace {

template <class T>
T element_of(const T* matrix, char op, i64 stride, i64 row, i64 column) {
  if (op == 'N') return matrix[column * stride + row];
  const T value = matrix[row * stride + column];
  if constexpr (is_complex<T>) return op == 'C' ? std::conj(value) : value;
  return value;
}

// C = alpha * op(A) + beta * op(B). C may be A or B, if that one is not transposed.
template <class T>
int geam(const char* name, Handle* handle, int op_a, int op_b, i64 m, i64 n, const T* alpha,
         const T* a, i64 lda, const T* beta, const T* b, i64 ldb, T* c, i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char first = operation(op_a, "transa"), second = operation(op_b, "transb");
    need_sizes({{"m", m}, {"n", n}});
    need_stride(lda, first == 'N' ? m : n, "lda");
    need_stride(ldb, second == 'N' ? m : n, "ldb");
    need_stride(ldc, m, "ldc");
    if ((c == a && (first != 'N' || lda != ldc)) || (c == b && (second != 'N' || ldb != ldc)))
      throw Failed{kInvalidValue, "C is A or B, which is transposed or has another stride"};
    if (!m || !n) return;
    enqueue(own.stream, name, sizes({{"m", m}, {"n", n}}),
            [=, by_a = Scalar<T>(own, alpha, "alpha"),
             by_b = Scalar<T>(own, beta, "beta")](Frame& frame) {
              const T of_a = by_a.get(frame), of_b = by_b.get(frame);
              const auto used = [&](const char* what, const T* matrix, T factor, char op,
                                    i64 stride) {
                if (factor == T{}) return static_cast<const T*>(nullptr);
                return op == 'N' ? frame.matrix(what, matrix, m, n, stride)
                                 : frame.matrix(what, matrix, n, m, stride);
              };
              const T* one = used("A", a, of_a, first, lda);
              const T* two = used("B", b, of_b, second, ldb);
              T* to = frame.matrix("C", c, m, n, ldc, Access::writes);
              for (i64 column = 0; column < n; ++column) {
                for (i64 row = 0; row < m; ++row) {
                  T sum{};
                  if (one) sum += of_a * element_of(one, first, lda, row, column);
                  if (two) sum += of_b * element_of(two, second, ldb, row, column);
                  to[column * ldc + row] = sum;
                }
              }
            });
  });
}

// C = diag(x) * A, or A * diag(x).
template <class T>
int dgmm(const char* name, Handle* handle, int mode, i64 m, i64 n, const T* a, i64 lda, const T* x,
         i64 incx, T* c, i64 ldc) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char left = side(mode);
    need_sizes({{"m", m}, {"n", n}});
    need_stride(lda, m, "lda");
    need_stride(ldc, m, "ldc");
    if (!m || !n) return;
    enqueue(own.stream, name, sizes({{"m", m}, {"n", n}}), [=](Frame& frame) {
      const i64 count = left == 'L' ? m : n;
      const T* from = frame.matrix("A", a, m, n, lda);
      const T* by = frame.vector("x", x, count, incx);
      const i64 first = incx < 0 ? (1 - count) * incx : 0;
      T* to = frame.matrix("C", c, m, n, ldc, Access::writes);
      for (i64 column = 0; column < n; ++column)
        for (i64 row = 0; row < m; ++row)
          to[column * ldc + row] =
              from[column * lda + row] * by[first + (left == 'L' ? row : column) * incx];
    });
  });
}

template <class T>
int tpttr(const char* name, Handle* handle, int uplo, i64 n, const T* ap, T* a, i64 lda) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    need_stride(lda, n, "lda");
    if (!n) return;
    enqueue(own.stream, name, sizes({{"n", n}}), [=](Frame& frame) {
      const T* from = frame.vector("AP", ap, packed(n));
      i64 info = 0;
      blas<T>("tpttr", &part, &n, from, frame.matrix("A", a, n, n, lda), &lda, &info);
    });
  });
}

template <class T>
int trttp(const char* name, Handle* handle, int uplo, i64 n, const T* a, i64 lda, T* ap) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char part = fill(uplo);
    need_sizes({{"n", n}});
    need_stride(lda, n, "lda");
    if (!n) return;
    enqueue(own.stream, name, sizes({{"n", n}}), [=](Frame& frame) {
      const T* from = frame.matrix("A", a, n, n, lda);
      i64 info = 0;
      blas<T>("trttp", &part, &n, from, &lda, frame.vector("AP", ap, packed(n), 1, Access::writes),
              &info);
    });
  });
}

// The matrices or vectors of a batch, given by an array of pointers or by a stride.
template <class T>
struct Members {
  const char* argument;
  T* first;
  T* const* array;
  i64 stride;

  T* at(Frame& frame, i64 index, i64 count) const {
    return array ? frame.vector(std::string(argument) + "array", array, count)[index]
                 : first + index * stride;
  }
  std::string named(i64 index) const { return argument + ("[" + std::to_string(index)) + "]"; }
};

template <class T>
int gemv_batch(const char* name, Handle* handle, int trans, i64 m, i64 n, const T* alpha,
               Members<const T> a, i64 lda, Members<const T> x, i64 incx, const T* beta,
               Members<T> y, i64 incy, i64 count) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char op = operation(trans, "trans");
    need_sizes({{"m", m}, {"n", n}, {"batchCount", count}});
    need_stride(lda, m, "lda");
    need_increment(incx, "incx");
    need_increment(incy, "incy");
    if (!m || !n || !count) return;
    enqueue(own.stream, name, sizes({{"m", m}, {"n", n}, {"batch", count}}),
            [=, by = Scalar<T>(own, alpha, "alpha"),
             keep = Scalar<T>(own, beta, "beta")](Frame& frame) {
              const T factor = by.get(frame), kept = keep.get(frame);
              for (i64 i = 0; i < count; ++i) {
                const T* matrix = frame.matrix(a.named(i), a.at(frame, i, count), m, n, lda);
                const T* from =
                    frame.vector(x.named(i), x.at(frame, i, count), op == 'N' ? n : m, incx);
                T* to = frame.vector(y.named(i), y.at(frame, i, count), op == 'N' ? m : n, incy,
                                     kept == T{} ? Access::writes : Access::updates);
                blas<T>("gemv", &op, &m, &n, &factor, matrix, &lda, from, &incx, &kept, to, &incy);
              }
            });
  });
}

// ---- systems of equations: LAPACK's, for each member of a batch ----

std::vector<i64> widened(const int* pivots, i64 n) {
  std::vector<i64> wide(static_cast<std::size_t>(n));
  for (i64 i = 0; i < n; ++i) wide[static_cast<std::size_t>(i)] = pivots ? pivots[i] : i + 1;
  return wide;
}

// Factors without pivoting, for which LAPACK has no routine.
template <class T>
i64 factored_in_place(T* matrix, i64 n, i64 lda) {
  i64 singular = 0;
  for (i64 k = 0; k < n; ++k) {
    const T pivot = matrix[k * lda + k];
    if (pivot == T{} && !singular) singular = k + 1;
    for (i64 row = k + 1; row < n; ++row) {
      const T factor = matrix[k * lda + row] /= pivot;
      for (i64 column = k + 1; column < n; ++column)
        matrix[column * lda + row] -= factor * matrix[column * lda + k];
    }
  }
  return singular;
}

template <class T>
int getrf(const char* name, Handle* handle, i64 n, T* const* a, i64 lda, int* pivots, int* info,
          i64 count) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    need_sizes({{"n", n}, {"batchSize", count}});
    need_stride(lda, n, "lda");
    if (!n || !count) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"batch", count}}), [=](Frame& frame) {
      const Members<T> all{"A", nullptr, a, 0};
      int* states = frame.vector("info", info, count, 1, Access::writes);
      int* rows = pivots ? frame.vector("P", pivots, n * count, 1, Access::writes) : nullptr;
      for (i64 i = 0; i < count; ++i) {
        T* matrix = frame.matrix(all.named(i), all.at(frame, i, count), n, n, lda);
        i64 state = 0;
        if (rows) {
          std::vector<i64> wide(static_cast<std::size_t>(n));
          blas<T>("getrf", &n, &n, matrix, &lda, wide.data(), &state);
          for (i64 k = 0; k < n; ++k)
            rows[i * n + k] = static_cast<int>(wide[static_cast<std::size_t>(k)]);
        } else {
          state = factored_in_place(matrix, n, lda);
        }
        states[i] = static_cast<int>(state);
      }
    });
  });
}

template <class T>
int getrs(const char* name, Handle* handle, int trans, i64 n, i64 nrhs, const T* const* a, i64 lda,
          const int* pivots, T* const* b, i64 ldb, int* info, i64 count) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    const char op = operation(trans, "trans");
    need_sizes({{"n", n}, {"nrhs", nrhs}, {"batchSize", count}});
    need_stride(lda, n, "lda");
    need_stride(ldb, n, "ldb");
    // On the host; it describes the arguments of this call.
    needed(info, "info") = 0;
    if (!n || !nrhs || !count) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"nrhs", nrhs}, {"batch", count}}),
            [=](Frame& frame) {
              const Members<const T> all{"A", nullptr, a, 0};
              const Members<T> sides{"B", nullptr, b, 0};
              const int* rows = pivots ? frame.vector("P", pivots, n * count) : nullptr;
              for (i64 i = 0; i < count; ++i) {
                const T* matrix = frame.matrix(all.named(i), all.at(frame, i, count), n, n, lda);
                T* to = frame.matrix(sides.named(i), sides.at(frame, i, count), n, nrhs, ldb);
                const std::vector<i64> wide = widened(rows ? rows + i * n : nullptr, n);
                i64 state = 0;
                blas<T>("getrs", &op, &n, &nrhs, matrix, &lda, wide.data(), to, &ldb, &state);
              }
            });
  });
}

// C = the inverse of a matrix that getrf has factored; with `whole` it is factored first.
template <class T>
int getri(const char* name, Handle* handle, i64 n, const T* const* a, i64 lda, const int* pivots,
          T* const* c, i64 ldc, int* info, i64 count, bool whole) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    need_sizes({{"n", n}, {"batchSize", count}});
    need_stride(lda, n, "lda");
    need_stride(ldc, n, "ldc");
    if (!n || !count) return;
    enqueue(own.stream, name, sizes({{"n", n}, {"batch", count}}), [=](Frame& frame) {
      const Members<const T> all{"A", nullptr, a, 0};
      const Members<T> inverses{"C", nullptr, c, 0};
      const int* rows = pivots ? frame.vector("P", pivots, n * count) : nullptr;
      int* states = frame.vector("info", info, count, 1, Access::writes);
      std::vector<T> room(static_cast<std::size_t>(n * n));
      for (i64 i = 0; i < count; ++i) {
        const T* matrix = frame.matrix(all.named(i), all.at(frame, i, count), n, n, lda);
        T* to = frame.matrix(inverses.named(i), inverses.at(frame, i, count), n, n, ldc,
                             Access::writes);
        for (i64 column = 0; column < n; ++column)
          std::copy_n(matrix + column * lda, n, to + column * ldc);
        std::vector<i64> wide = widened(rows ? rows + i * n : nullptr, n);
        i64 state = 0;
        const auto size = static_cast<i64>(room.size());
        if (whole) blas<T>("getrf", &n, &n, to, &ldc, wide.data(), &state);
        if (!state) blas<T>("getri", &n, to, &ldc, wide.data(), room.data(), &size, &state);
        states[i] = static_cast<int>(state);
      }
    });
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define MATRICES(L, T, I, S)                                                                     \
  CUBLAS_API cublas##L##geam##S(Handle* h, int op_a, int op_b, I m, I n, const T* alpha,         \
                                const T* a, I lda, const T* beta, const T* b, I ldb, T* c,       \
                                I ldc) {                                                         \
    return geam("cublas" #L "geam", h, op_a, op_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc);   \
  }                                                                                              \
  CUBLAS_API cublas##L##dgmm##S(Handle* h, int mode, I m, I n, const T* a, I lda, const T* x,    \
                                I incx, T* c, I ldc) {                                           \
    return dgmm("cublas" #L "dgmm", h, mode, m, n, a, lda, x, incx, c, ldc);                     \
  }                                                                                              \
  CUBLAS_API cublas##L##gemvBatched##S(Handle* h, int trans, I m, I n, const T* alpha,           \
                                       const T* const* a, I lda, const T* const* x, I incx,      \
                                       const T* beta, T* const* y, I incy, I count) {            \
    return gemv_batch<T>("cublas" #L "gemvBatched", h, trans, m, n, alpha, {"A", nullptr, a, 0}, \
                         lda, {"x", nullptr, x, 0}, incx, beta, {"y", nullptr, y, 0}, incy,      \
                         count);                                                                 \
  }                                                                                              \
  CUBLAS_API cublas##L##gemvStridedBatched##S(Handle* h, int trans, I m, I n, const T* alpha,    \
                                              const T* a, I lda, long long stride_a, const T* x, \
                                              I incx, long long stride_x, const T* beta, T* y,   \
                                              I incy, long long stride_y, I count) {             \
    return gemv_batch<T>("cublas" #L "gemvStridedBatched", h, trans, m, n, alpha,                \
                         {"A", a, nullptr, stride_a}, lda, {"x", x, nullptr, stride_x}, incx,    \
                         beta, {"y", y, nullptr, stride_y}, incy, count);                        \
  }
ALL_TYPES(MATRICES, )

#define SYSTEMS(L, T)                                                                             \
  CUBLAS_API cublas##L##tpttr(Handle* h, int uplo, int n, const T* ap, T* a, int lda) {           \
    return tpttr("cublas" #L "tpttr", h, uplo, n, ap, a, lda);                                    \
  }                                                                                               \
  CUBLAS_API cublas##L##trttp(Handle* h, int uplo, int n, const T* a, int lda, T* ap) {           \
    return trttp("cublas" #L "trttp", h, uplo, n, a, lda, ap);                                    \
  }                                                                                               \
  CUBLAS_API cublas##L##getrfBatched(Handle* h, int n, T* const* a, int lda, int* pivots,         \
                                     int* info, int count) {                                      \
    return getrf("cublas" #L "getrfBatched", h, n, a, lda, pivots, info, count);                  \
  }                                                                                               \
  CUBLAS_API cublas##L##getrsBatched(Handle* h, int trans, int n, int nrhs, const T* const* a,    \
                                     int lda, const int* pivots, T* const* b, int ldb, int* info, \
                                     int count) {                                                 \
    return getrs("cublas" #L "getrsBatched", h, trans, n, nrhs, a, lda, pivots, b, ldb, info,     \
                 count);                                                                          \
  }                                                                                               \
  CUBLAS_API cublas##L##getriBatched(Handle* h, int n, const T* const* a, int lda,                \
                                     const int* pivots, T* const* c, int ldc, int* info,          \
                                     int count) {                                                 \
    return getri("cublas" #L "getriBatched", h, n, a, lda, pivots, c, ldc, info, count, false);   \
  }                                                                                               \
  CUBLAS_API cublas##L##matinvBatched(Handle* h, int n, const T* const* a, int lda, T* const* c,  \
                                      int ldc, int* info, int count) {                            \
    return getri("cublas" #L "matinvBatched", h, n, a, lda, nullptr, c, ldc, info, count, true);  \
  }
SYSTEMS(S, float)
SYSTEMS(D, double)
SYSTEMS(C, Complex)
SYSTEMS(Z, DoubleComplex)
