// Routines on a vector or on two.
#include <vector>

#include "cublas.hpp"

namespace workbench::host {
namespace {

// A vector argument. The functions below take the BLAS call on the vectors as their last argument.
template <class T>
struct Vector {
  T* address;
  i64 increment;
};

template <class T, class Body>
int on_vector(const char* name, Handle* handle, i64 n, Vector<T> x, Body&& prepare) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    at_least(n, 0, "n", kInvalidValue);
    enqueue(own.stream, name, sizes({{"n", n}}), prepare(own, n, x));
  });
}

// The name of a BLAS routine that scales a complex vector by a real number, such as "csscal".
template <class T, class Factor>
std::string scal_name() {
  return std::is_same_v<T, Factor> ? letter<T>() + std::string("scal")
                                   : letter<T>() + std::string(1, letter<Factor>()) + "scal";
}

template <class T, class Factor>
int scal(const char* name, Handle* handle, i64 n, const Factor* alpha, T* x, i64 incx) {
  return on_vector(name, handle, n, Vector<T>{x, incx}, [&](const Handle& own, i64, Vector<T>) {
    return [=, by = Scalar<Factor>(own, alpha, "alpha")](Frame& frame) {
      if (n == 0 || incx <= 0) return;
      const Factor factor = by.get(frame);
      T* to = frame.vector("x", x, n, incx);
      fortran(scal_name<T, Factor>(), &n, &factor, to, &incx);
    };
  });
}

template <class T>
int axpy(const char* name, Handle* handle, i64 n, const T* alpha, const T* x, i64 incx, T* y,
         i64 incy) {
  return on_vector(name, handle, n, Vector<T>{y, incy}, [&](const Handle& own, i64, Vector<T>) {
    return [=, by = Scalar<T>(own, alpha, "alpha")](Frame& frame) {
      const T factor = by.get(frame);
      const T* from = frame.vector("x", x, n, incx);
      T* to = frame.vector("y", y, n, incy);
      if (n) blas<T>("axpy", &n, &factor, from, &incx, to, &incy);
    };
  });
}

template <class T>
int copy(const char* name, Handle* handle, i64 n, const T* x, i64 incx, T* y, i64 incy) {
  return on_vector(name, handle, n, Vector<T>{y, incy}, [&](const Handle&, i64, Vector<T>) {
    return [=](Frame& frame) {
      const T* from = frame.vector("x", x, n, incx);
      T* to = frame.vector("y", y, n, incy, Access::writes);
      if (n) blas<T>("copy", &n, from, &incx, to, &incy);
    };
  });
}

template <class T>
int swap(const char* name, Handle* handle, i64 n, T* x, i64 incx, T* y, i64 incy) {
  return on_vector(name, handle, n, Vector<T>{y, incy}, [&](const Handle&, i64, Vector<T>) {
    return [=](Frame& frame) {
      T* one = frame.vector("x", x, n, incx);
      T* two = frame.vector("y", y, n, incy);
      if (n) blas<T>("swap", &n, one, &incx, two, &incy);
    };
  });
}

// Enqueues a call that returns one number, and waits for it if the number is on the host.
template <class R, class Body>
int result_of(const char* name, Handle* handle, i64 n, R* result, Body&& compute) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    at_least(n, 0, "n", kInvalidValue);
    const Numbers<R> out(own, result, "result");
    enqueue(own.stream, name, sizes({{"n", n}}),
            [=](Frame& frame) { *out.get(frame) = compute(frame); });
    if (own.pointer_mode == kOnHost) await(own);
  });
}

template <class T>
int dot(const char* name, Handle* handle, i64 n, const T* x, i64 incx, const T* y, i64 incy,
        T* result, bool conjugated) {
  return result_of(name, handle, n, result, [=](Frame& frame) {
    const T* one = frame.vector("x", x, n, incx);
    const T* two = frame.vector("y", y, n, incy);
    if (n == 0) return T{};
    if constexpr (is_complex<T>) {
      T sum{};
      // Compilers differ in how a function returns a complex number; this one writes it to an
      // address.
      const std::string routine_name =
          std::string("cblas_") + letter<T>() + (conjugated ? "dotc_sub" : "dotu_sub");
      reinterpret_cast<void (*)(i64, const void*, i64, const void*, i64, void*)>(
          c_routine(routine_name))(n, one, incx, two, incy, &sum);
      return sum;
    } else {
      return fortran<T>(letter<T>() + std::string("dot"), &n, one, &incx, two, &incy);
    }
  });
}

template <class T>
std::string real_name(const char* routine) {
  if constexpr (is_complex<T>)
    return letter<Real<T>>() + std::string(1, letter<T>()) + routine;
  else
    return letter<T>() + std::string(routine);
}

// nrm2 and asum, whose results are real.
template <class T>
int reduction(const char* name, const char* routine, Handle* handle, i64 n, const T* x, i64 incx,
              Real<T>* result) {
  return result_of(name, handle, n, result, [=](Frame& frame) {
    if (n == 0 || incx <= 0) return Real<T>{};
    const T* from = frame.vector("x", x, n, incx);
    return fortran<Real<T>>(real_name<T>(routine), &n, from, &incx);
  });
}

// iamax and iamin, which count from 1; 0 for an empty vector.
template <class T, class I>
int extreme(const char* name, const char* routine, Handle* handle, i64 n, const T* x, i64 incx,
            I* result) {
  return result_of(name, handle, n, result, [=](Frame& frame) {
    if (n == 0 || incx <= 0) return I{};
    const T* from = frame.vector("x", x, n, incx);
    const std::string full = std::string("i") + letter<T>() + routine;
    return static_cast<I>(fortran<i64>(full, &n, from, &incx));
  });
}

// rot: rotates two vectors; the sine is complex or real.
template <class T, class Sine>
int rot(const char* name, Handle* handle, i64 n, T* x, i64 incx, T* y, i64 incy, const Real<T>* c,
        const Sine* s) {
  return on_vector(name, handle, n, Vector<T>{y, incy}, [&](const Handle& own, i64, Vector<T>) {
    return
        [=, cosine = Scalar<Real<T>>(own, c, "c"), sine = Scalar<Sine>(own, s, "s")](Frame& frame) {
          const Real<T> by_c = cosine.get(frame);
          const Sine by_s = sine.get(frame);
          T* one = frame.vector("x", x, n, incx);
          T* two = frame.vector("y", y, n, incy);
          if (n == 0) return;
          if constexpr (std::is_same_v<T, Sine>)
            blas<T>("rot", &n, one, &incx, two, &incy, &by_c, &by_s);
          else
            fortran(letter<T>() + std::string(1, letter<Sine>()) + "rot", &n, one, &incx, two,
                    &incy, &by_c, &by_s);
        };
  });
}

// Calls a routine on numbers alone, which it reads and writes.
template <class Body>
int on_numbers(const char* name, Handle* handle, Body&& prepare) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    enqueue(own.stream, name, "", prepare(own));
    if (own.pointer_mode == kOnHost) await(own);
  });
}

template <class T>
int rotg(const char* name, Handle* handle, T* a, T* b, Real<T>* c, T* s) {
  return on_numbers(name, handle, [&](const Handle& own) {
    return [first = Numbers<T>(own, a, "a", 1, Access::updates),
            second = Numbers<T>(own, b, "b", 1, Access::updates),
            cosine = Numbers<Real<T>>(own, c, "c"), sine = Numbers<T>(own, s, "s")](Frame& frame) {
      blas<T>("rotg", first.get(frame), second.get(frame), cosine.get(frame), sine.get(frame));
    };
  });
}

constexpr i64 kRotationParameters = 5;

template <class T>
int rotm(const char* name, Handle* handle, i64 n, T* x, i64 incx, T* y, i64 incy, const T* param) {
  return on_vector(name, handle, n, Vector<T>{y, incy}, [&](const Handle& own, i64, Vector<T>) {
    std::vector<T> known;
    if (own.pointer_mode == kOnHost)
      known.assign(&needed(param, "param"), param + kRotationParameters);
    return [=](Frame& frame) {
      const T* given =
          known.empty() ? frame.vector("param", param, kRotationParameters) : known.data();
      T* one = frame.vector("x", x, n, incx);
      T* two = frame.vector("y", y, n, incy);
      if (n) blas<T>("rotm", &n, one, &incx, two, &incy, given);
    };
  });
}

template <class T>
int rotmg(const char* name, Handle* handle, T* d1, T* d2, T* x1, const T* y1, T* param) {
  return on_numbers(name, handle, [&](const Handle& own) {
    return [first = Numbers<T>(own, d1, "d1", 1, Access::updates),
            second = Numbers<T>(own, d2, "d2", 1, Access::updates),
            x = Numbers<T>(own, x1, "x1", 1, Access::updates), y = Scalar<T>(own, y1, "y1"),
            out = Numbers<T>(own, param, "param", kRotationParameters)](Frame& frame) {
      const T second_y = y.get(frame);
      blas<T>("rotmg", first.get(frame), second.get(frame), x.get(frame), &second_y,
              out.get(frame));
    };
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define VECTORS(L, T, I, S)                                                                  \
  CUBLAS_API cublas##L##axpy##S(Handle* h, I n, const T* alpha, const T* x, I incx, T* y,    \
                                I incy) {                                                    \
    return axpy("cublas" #L "axpy", h, n, alpha, x, incx, y, incy);                          \
  }                                                                                          \
  CUBLAS_API cublas##L##copy##S(Handle* h, I n, const T* x, I incx, T* y, I incy) {          \
    return copy("cublas" #L "copy", h, n, x, incx, y, incy);                                 \
  }                                                                                          \
  CUBLAS_API cublas##L##swap##S(Handle* h, I n, T* x, I incx, T* y, I incy) {                \
    return swap("cublas" #L "swap", h, n, x, incx, y, incy);                                 \
  }                                                                                          \
  CUBLAS_API cublas##L##scal##S(Handle* h, I n, const T* alpha, T* x, I incx) {              \
    return scal("cublas" #L "scal", h, n, alpha, x, incx);                                   \
  }                                                                                          \
  CUBLAS_API cublas##L##rot##S(Handle* h, I n, T* x, I incx, T* y, I incy, const Real<T>* c, \
                               const T* s) {                                                 \
    return rot("cublas" #L "rot", h, n, x, incx, y, incy, c, s);                             \
  }
ALL_TYPES(VECTORS, _v2)

#define EXTREMES(l, T, I, S)                                                      \
  CUBLAS_API cublasI##l##amax##S(Handle* h, I n, const T* x, I incx, I* result) { \
    return extreme("cublasI" #l "amax", "amax", h, n, x, incx, result);           \
  }                                                                               \
  CUBLAS_API cublasI##l##amin##S(Handle* h, I n, const T* x, I incx, I* result) { \
    return extreme("cublasI" #l "amin", "amin", h, n, x, incx, result);           \
  }
BOTH_INTEGERS(EXTREMES, s, float, _v2)
BOTH_INTEGERS(EXTREMES, d, double, _v2)
BOTH_INTEGERS(EXTREMES, c, Complex, _v2)
BOTH_INTEGERS(EXTREMES, z, DoubleComplex, _v2)

#define REDUCTIONS(L, T, I, S)                                                         \
  CUBLAS_API cublas##L##nrm2##S(Handle* h, I n, const T* x, I incx, Real<T>* result) { \
    return reduction("cublas" #L "nrm2", "nrm2", h, n, x, incx, result);               \
  }                                                                                    \
  CUBLAS_API cublas##L##asum##S(Handle* h, I n, const T* x, I incx, Real<T>* result) { \
    return reduction("cublas" #L "asum", "asum", h, n, x, incx, result);               \
  }
REAL_TYPES(REDUCTIONS, _v2)
BOTH_INTEGERS(REDUCTIONS, Sc, Complex, _v2)
BOTH_INTEGERS(REDUCTIONS, Dz, DoubleComplex, _v2)

#define REAL_ROTATIONS(L, T, I, S)                                                            \
  CUBLAS_API cublas##L##dot##S(Handle* h, I n, const T* x, I incx, const T* y, I incy,        \
                               T* result) {                                                   \
    return dot("cublas" #L "dot", h, n, x, incx, y, incy, result, false);                     \
  }                                                                                           \
  CUBLAS_API cublas##L##rotm##S(Handle* h, I n, T* x, I incx, T* y, I incy, const T* param) { \
    return rotm("cublas" #L "rotm", h, n, x, incx, y, incy, param);                           \
  }
REAL_TYPES(REAL_ROTATIONS, _v2)

#define COMPLEX_DOTS(L, T, I, S)                                                        \
  CUBLAS_API cublas##L##dotu##S(Handle* h, I n, const T* x, I incx, const T* y, I incy, \
                                T* result) {                                            \
    return dot("cublas" #L "dotu", h, n, x, incx, y, incy, result, false);              \
  }                                                                                     \
  CUBLAS_API cublas##L##dotc##S(Handle* h, I n, const T* x, I incx, const T* y, I incy, \
                                T* result) {                                            \
    return dot("cublas" #L "dotc", h, n, x, incx, y, incy, result, true);               \
  }
COMPLEX_TYPES(COMPLEX_DOTS, _v2)

#define MIXED(L, T, I, S)                                                                    \
  CUBLAS_API cublas##L##scal##S(Handle* h, I n, const Real<T>* alpha, T* x, I incx) {        \
    return scal("cublas" #L "scal", h, n, alpha, x, incx);                                   \
  }                                                                                          \
  CUBLAS_API cublas##L##rot##S(Handle* h, I n, T* x, I incx, T* y, I incy, const Real<T>* c, \
                               const Real<T>* s) {                                           \
    return rot("cublas" #L "rot", h, n, x, incx, y, incy, c, s);                             \
  }
BOTH_INTEGERS(MIXED, Cs, Complex, _v2)
BOTH_INTEGERS(MIXED, Zd, DoubleComplex, _v2)

#define ROTG(L, T)                                                         \
  CUBLAS_API cublas##L##rotg_v2(Handle* h, T* a, T* b, Real<T>* c, T* s) { \
    return rotg("cublas" #L "rotg", h, a, b, c, s);                        \
  }
ROTG(S, float)
ROTG(D, double)
ROTG(C, Complex)
ROTG(Z, DoubleComplex)

#define ROTMG(L, T)                                                                       \
  CUBLAS_API cublas##L##rotmg_v2(Handle* h, T* d1, T* d2, T* x1, const T* y1, T* param) { \
    return rotmg("cublas" #L "rotmg", h, d1, d2, x1, y1, param);                          \
  }
ROTMG(S, float)
ROTMG(D, double)
