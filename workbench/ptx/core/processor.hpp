// Features of the processor, detected at run time.
#pragma once

namespace workbench::ptx {

// Whether the processor runs code compiled with -march=x86-64-v3.
inline bool supports_v3() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

// Whether the processor has 512-bit vectors (AVX-512F and AVX-512BW).
inline bool supports_512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

}  // namespace workbench::ptx
