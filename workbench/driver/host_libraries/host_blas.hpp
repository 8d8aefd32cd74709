// The host's BLAS and LAPACK through their Fortran interface with 64-bit integers. Every argument
// is a pointer, so one template serves four types.
#pragma once
#include "elements.hpp"

namespace workbench::host {

// The address of a routine, such as "sgemm". Throws DriverFailed without one.
void* routine(const std::string& name);
// The address of a routine of the C interface, such as "cblas_zdotc_sub".
void* c_routine(const std::string& name);
// The reason why there are no routines; empty if there are.
std::string blas_missing();

template <class T>
constexpr char letter() {
  if constexpr (std::is_same_v<T, float>) return 's';
  if constexpr (std::is_same_v<T, double>) return 'd';
  if constexpr (std::is_same_v<T, Complex>) return 'c';
  if constexpr (std::is_same_v<T, DoubleComplex>) return 'z';
}

template <class Result = void, class... Pointers>
Result fortran(const std::string& name, Pointers... arguments) {
  static_assert((std::is_pointer_v<Pointers> && ...));
  return reinterpret_cast<Result (*)(Pointers...)>(routine(name))(arguments...);
}

// Calls the routine for a type: blas<float>("gemm", ...) is sgemm.
template <class T, class... Pointers>
void blas(const char* name, Pointers... arguments) {
  fortran(letter<T>() + std::string(name), arguments...);
}

}  // namespace workbench::host
