// The types of elements, by their numbers in cudaDataType.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "arithmetic/half.hpp"
#include "calls.hpp"

namespace workbench::host {

using ptx::Bfloat;
using ptx::Half;
using Complex = std::complex<float>;
using DoubleComplex = std::complex<double>;

enum DataType : int {
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kComplex = 4,
  kDoubleComplex = 5,
  kInt32 = 10,
  kBfloat = 14,
};

template <class T>
inline constexpr bool is_complex = std::is_same_v<T, Complex> || std::is_same_v<T, DoubleComplex>;

template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;

template <class T>
constexpr int code_of() {
  if constexpr (std::is_same_v<T, float>) return kFloat;
  if constexpr (std::is_same_v<T, double>) return kDouble;
  if constexpr (std::is_same_v<T, Half>) return kHalf;
  if constexpr (std::is_same_v<T, Bfloat>) return kBfloat;
  if constexpr (std::is_same_v<T, Complex>) return kComplex;
  if constexpr (std::is_same_v<T, DoubleComplex>) return kDoubleComplex;
  if constexpr (std::is_same_v<T, std::int8_t>) return kInt8;
  if constexpr (std::is_same_v<T, std::int32_t>) return kInt32;
}

constexpr bool is_integer(int type) { return type == kInt8 || type == kInt32; }

// Calls `body` with a value of the type; throws Failed with `status` for an unknown type.
template <class Body>
auto with_type(int type, const char* argument, int status, Body&& body) {
  switch (type) {
    case kFloat: return body(float{});
    case kDouble: return body(double{});
    case kHalf: return body(Half{});
    case kBfloat: return body(Bfloat{});
    case kComplex: return body(Complex{});
    case kDoubleComplex: return body(DoubleComplex{});
    case kInt8: return body(std::int8_t{});
    case kInt32: return body(std::int32_t{});
    default:
      throw Failed{status, std::string(argument) + " is the data type " + std::to_string(type) +
                               "; float16, bfloat16, float32, float64, complex64, complex128, int8 "
                               "and int32 are there"};
  }
}

template <class To, class From>
To converted(From from) {
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, Bfloat>) {
    return converted<To>(ptx::to_f32(from));
  } else if constexpr (std::is_same_v<To, Half>) {
    if constexpr (is_complex<From>)
      return ptx::to_half(from.real());
    else
      return ptx::to_half(
          static_cast<std::conditional_t<std::is_same_v<From, float>, float, double>>(from));
  } else if constexpr (std::is_same_v<To, Bfloat>) {
    if constexpr (is_complex<From>)
      return ptx::to_bfloat(from.real());
    else
      return ptx::to_bfloat(
          static_cast<std::conditional_t<std::is_same_v<From, float>, float, double>>(from));
  } else if constexpr (is_complex<To>) {
    if constexpr (is_complex<From>)
      return To(static_cast<Real<To>>(from.real()), static_cast<Real<To>>(from.imag()));
    else
      return To(static_cast<Real<To>>(from));
  } else if constexpr (is_complex<From>) {
    return converted<To>(from.real());
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // An integer product is exact and wraps as integers do; int8 saturates.
    if constexpr (sizeof(To) == 1)
      return static_cast<To>(std::clamp(std::nearbyint(from), From{-128}, From{127}));
    else
      return static_cast<To>(static_cast<i64>(std::nearbyint(from)));
  } else {
    return static_cast<To>(from);
  }
}

}  // namespace workbench::host
