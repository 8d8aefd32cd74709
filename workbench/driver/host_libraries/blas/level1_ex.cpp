// Routines on vectors whose types are arguments of the call. Elements are converted to the type of
// the computation, and the result is rounded once.
#include <vector>

#include "cublas.hpp"

namespace workbench::host {
namespace {

// Calls `body` with a value of the type of the computation: float32 for float16 and bfloat16.
template <class Body>
void in_type(int type, Body&& body) {
  switch (type) {
    case kFloat: return body(float{});
    case kDouble: return body(double{});
    case kComplex: return body(Complex{});
    case kDoubleComplex: return body(DoubleComplex{});
    default:
      throw Failed{kNotSupported, "executionType is the data type " + std::to_string(type) +
                                      "; float32, float64, complex64 and complex128 are there"};
  }
}

std::size_t size_of(int type) {
  return with_type(type, "a vector", kNotSupported, [](auto one) { return sizeof one; });
}

// A vector on the device, with its elements in the order in which a routine walks through them.
struct Elements {
  const char* argument;
  const void* address;
  int type;
  i64 count, increment;

  i64 place(i64 index) const {
    return increment < 0 ? (index - count + 1) * increment : index * increment;
  }
  void* here(Frame& frame, Access access) const {
    return frame.range(argument, address, size_of(type), 1, increment ? count : 1,
                       increment < 0 ? -increment : increment, access);
  }
  template <class T>
  std::vector<T> read(Frame& frame) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    const void* from = here(frame, Access::reads);
    with_type(type, argument, kNotSupported, [&](auto one) {
      for (i64 i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i)] =
            converted<T>(static_cast<const decltype(one)*>(from)[place(i)]);
    });
    return values;
  }
  template <class T>
  void write(Frame& frame, const std::vector<T>& values) const {
    void* to = here(frame, Access::writes);
    with_type(type, argument, kNotSupported, [&](auto one) {
      for (i64 i = 0; i < count; ++i)
        static_cast<decltype(one)*>(to)[place(i)] =
            converted<decltype(one)>(values[static_cast<std::size_t>(i)]);
    });
  }
};

// A number of any type that a call takes by address, converted to T.
template <class T>
std::function<T(Frame&)> number(const Handle& own, const void* address, int type,
                                const char* argument) {
  return with_type(type, argument, kNotSupported, [&](auto one) -> std::function<T(Frame&)> {
    using Kept = decltype(one);
    const Scalar<Kept> scalar(own, static_cast<const Kept*>(address), argument);
    return [scalar](Frame& frame) { return converted<T>(scalar.get(frame)); };
  });
}

template <class Body>
int leave(const char* name, Handle* handle, i64 n, void* result, int type, int execution,
          Body&& compute) {
  return call(name, [&] {
    const Handle& own = checked(handle);
    at_least(n, 0, "n", kInvalidValue);
    with_type(type, "resultType", kNotSupported, [&](auto one) {
      const Numbers<decltype(one)> out(own, static_cast<decltype(one)*>(result), "result");
      in_type(execution, [&](auto computed) {
        enqueue(own.stream, name, sizes({{"n", n}}), [=](Frame& frame) {
          *out.get(frame) = converted<decltype(one)>(compute(frame, computed));
        });
      });
    });
    if (own.pointer_mode == kOnHost) await(own);
  });
}

int dot(const char* name, Handle* handle, i64 n, const Elements& x, const Elements& y, void* result,
        int type, int execution, bool conjugated) {
  return leave(name, handle, n, result, type, execution, [=](Frame& frame, auto computed) {
    using T = decltype(computed);
    const std::vector<T> one = x.read<T>(frame), two = y.read<T>(frame);
    T sum{};
    for (std::size_t i = 0; i < one.size(); ++i) {
      if constexpr (is_complex<T>)
        sum += (conjugated ? std::conj(one[i]) : one[i]) * two[i];
      else
        sum += one[i] * two[i];
    }
    return sum;
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

#define TYPED(I, S)                                                                                \
  CUBLAS_API cublasDotEx##S(Handle* h, I n, const void* x, int type_x, I incx, const void* y,      \
                            int type_y, I incy, void* result, int type, int execution) {           \
    return dot("cublasDotEx", h, n, {"x", x, type_x, n, incx}, {"y", y, type_y, n, incy}, result,  \
               type, execution, false);                                                            \
  }                                                                                                \
  CUBLAS_API cublasDotcEx##S(Handle* h, I n, const void* x, int type_x, I incx, const void* y,     \
                             int type_y, I incy, void* result, int type, int execution) {          \
    return dot("cublasDotcEx", h, n, {"x", x, type_x, n, incx}, {"y", y, type_y, n, incy}, result, \
               type, execution, true);                                                             \
  }                                                                                                \
  CUBLAS_API cublasNrm2Ex##S(Handle* h, I n, const void* x, int type_x, I incx, void* result,      \
                             int type, int execution) {                                            \
    const Elements from{"x", x, type_x, n, incx};                                                  \
    return leave("cublasNrm2Ex", h, n, result, type, execution, [=](Frame& frame, auto one) {      \
      using T = decltype(one);                                                                     \
      const std::vector<T> values = from.read<T>(frame);                                           \
      const i64 count = n, step = 1;                                                               \
      std::string name(1, letter<T>());                                                            \
      if (is_complex<T>) name.insert(0, 1, letter<Real<T>>());                                     \
      return fortran<Real<T>>(name + "nrm2", &count, values.data(), &step);                        \
    });                                                                                            \
  }                                                                                                \
  CUBLAS_API cublasScalEx##S(Handle* h, I n, const void* alpha, int type_alpha, void* x,           \
                             int type_x, I incx, int execution) {                                  \
    return call("cublasScalEx", [&] {                                                              \
      const Handle& own = checked(h);                                                              \
      at_least(n, 0, "n", kInvalidValue);                                                          \
      const Elements on{"x", x, type_x, n, incx};                                                  \
      in_type(execution, [&](auto one) {                                                           \
        using T = decltype(one);                                                                   \
        const auto by = number<T>(own, alpha, type_alpha, "alpha");                                \
        enqueue(own.stream, "cublasScalEx", sizes({{"n", n}}), [=](Frame& frame) {                 \
          const T factor = by(frame);                                                              \
          std::vector<T> values = on.read<T>(frame);                                               \
          for (T& value : values) value *= factor;                                                 \
          on.write(frame, values);                                                                 \
        });                                                                                        \
      });                                                                                          \
    });                                                                                            \
  }                                                                                                \
  CUBLAS_API cublasAxpyEx##S(Handle* h, I n, const void* alpha, int type_alpha, const void* x,     \
                             int type_x, I incx, void* y, int type_y, I incy, int execution) {     \
    return call("cublasAxpyEx", [&] {                                                              \
      const Handle& own = checked(h);                                                              \
      at_least(n, 0, "n", kInvalidValue);                                                          \
      const Elements from{"x", x, type_x, n, incx}, on{"y", y, type_y, n, incy};                   \
      in_type(execution, [&](auto one) {                                                           \
        using T = decltype(one);                                                                   \
        const auto by = number<T>(own, alpha, type_alpha, "alpha");                                \
        enqueue(own.stream, "cublasAxpyEx", sizes({{"n", n}}), [=](Frame& frame) {                 \
          const T factor = by(frame);                                                              \
          const std::vector<T> added = from.read<T>(frame);                                        \
          std::vector<T> values = on.read<T>(frame);                                               \
          for (std::size_t i = 0; i < values.size(); ++i) values[i] += factor * added[i];          \
          on.write(frame, values);                                                                 \
        });                                                                                        \
      });                                                                                          \
    });                                                                                            \
  }
TYPED(int, )
TYPED(std::int64_t, _64)
