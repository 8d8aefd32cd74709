// What every program here does with a result: print what went wrong and end.
#pragma once
#include <cstdio>
#include <cstdlib>

inline void check(cudaError_t result, const char* file, int line) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, cudaGetErrorName(result), cudaGetErrorString(result));
  std::exit(EXIT_FAILURE);
}
#define CHECK(call) check((call), __FILE__, __LINE__)

inline int judged(const char* name, bool right) {
  std::printf("%s: %s\n", name, right ? "right" : "WRONG");
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
