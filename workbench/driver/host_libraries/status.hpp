// The statuses that cuBLAS and cuBLASLt share.
#pragma once
#include "calls.hpp"

namespace workbench::host {

enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kMappingError = 11,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};

int status_of(CUresult code) noexcept;
const char* name_of_status(int status);
const char* words_of_status(int status);

inline constexpr int kBlasVersion = 130100;  // the version of cuda-toolkit 13.0's headers
inline constexpr int kRuntimeVersion = 13000;

inline constexpr Statuses kBlasStatuses{kAllocFailed, kInternalError, kNotSupported, status_of};

template <class Body>
int call(const char* name, Body&& body) noexcept {
  return framed(kBlasStatuses, name, std::forward<Body>(body));
}

inline void need_address(const void* pointer, const char* argument) {
  if (!pointer) throw Failed{kInvalidValue, std::string(argument) + " is a null pointer"};
}

template <class T>
T& needed(T* pointer, const char* argument) {
  need_address(pointer, argument);
  return *pointer;
}

char operation(int given, const char* argument);
inline void need_sizes(std::initializer_list<std::pair<const char*, i64>> given) {
  for (const auto& [name, value] : given) at_least(value, 0, name, kInvalidValue);
}
inline void need_stride(i64 value, i64 rows, const char* argument) {
  at_least(value, std::max<i64>(1, rows), argument, kInvalidValue);
}
}  // namespace workbench::host
