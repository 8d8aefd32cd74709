// The host's BLAS and LAPACK, by their Fortran interface with 64-bit integers: every argument is a
// pointer, so that one template serves four types.
#pragma once
#include "elements.hpp"

namespace workbench::host {

// The address of a routine, such as "sgemm". Throws DriverFailed where there is none.
void* routine(const std::string& name);
// The same of one of the C interface, such as "cblas_zdotc_sub".
void* c_routine(const std::string& name);
// What is missing for any routine to be there; empty where they are.
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

// The routine of a type: blas<float>("gemm", ...) is sgemm.
template <class T, class... Pointers>
void blas(const char* name, Pointers... arguments) {
  fortran(letter<T>() + std::string(name), arguments...);
}

}  // namespace workbench::host
