// Moving elements without looking at them: by their bits, several at a time.
#pragma once

#include "common/vectors.cuh"

// Into shared memory. `address` must be a multiple of the vector's STEP_BYTES.
template <typename T, int N> __device__ __forceinline__ void store_shared(T* address, const Vector<T, N>& vector) {
  using Step = typename Vector<T, N>::Step;
#pragma unroll
  for (int i = 0; i < Vector<T, N>::NUM_STEPS; ++i)
    reinterpret_cast<Step*>(address)[i] = reinterpret_cast<const Step*>(vector.at)[i];
}

// Into global memory, likewise. An assignment would do, but the compiler splits it into 4-byte stores: 4 times the
// requests. This intrinsic (st.global.wb, the default caching) it must keep whole.
template <typename T, int N> __device__ __forceinline__ void store_global(T* address, const Vector<T, N>& vector) {
  using Step = typename Vector<T, N>::Step;
#pragma unroll
  for (int i = 0; i < Vector<T, N>::NUM_STEPS; ++i)
    __stwb(reinterpret_cast<Step*>(address) + i, reinterpret_cast<const Step*>(vector.at)[i]);
}
