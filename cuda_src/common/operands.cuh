// Elements of a cache as operands of a product on tensor cores. 16-bit elements are operands as they lie. 8-bit ones
// are copied and loaded as if a pair of them were one 16-bit element, at half the bytes, and become fp16 in registers.
//
// A matrix load brings pairs of neighbours where a product wants neighbours along its inner dimension. Keys: that is
// the head, whose elements may come in any order as long as the query's come in the same (`key_place`). Values: that is
// the tokens, whose elements of equal place in a pair are the right ones together; the head comes out in another order
// (`value_place`).
#pragma once

#include "common/reductions.cuh"
#include "common/tensor_cores.cuh"
#include "common/vectors.cuh"

template <typename Cache, int BYTES = sizeof(Cache)> struct Operands {
  using Operand = Cache;
  static constexpr bool FP16_ONLY = false;  // whatever the query is
  static constexpr int STEPS = 1;           // of a product, that one load of four matrices is enough for
  static constexpr float UNIT = 1.f;        // what an operand has still to be multiplied by

  // Where element `element` of 16 of the head stands in a step.
  static __device__ __forceinline__ constexpr int key_place(int element) { return element; }
  static __device__ __forceinline__ constexpr int value_place(int element) { return element; }

  // The operands of STEPS steps out of four matrices: rows 0-7 of both halves of the columns, then rows 8-15.
  static __device__ __forceinline__ void unpack_keys(unsigned (&to)[STEPS][4], const unsigned (&matrices)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[0][i] = matrices[i];
  }
  static __device__ __forceinline__ void unpack_values(unsigned (&to)[STEPS][4], const unsigned (&matrices)[4]) {
    unpack_keys(to, matrices);
  }
};

#ifdef QUANTIZED
#include "common/eight_bits.cuh"

template <typename Cache> struct Operands<Cache, 1> {
  using Operand = __half;
  static constexpr bool FP16_ONLY = true;
  static constexpr int STEPS = 2;
  static constexpr float UNIT = EightBits<Cache>::UNIT;

  static __device__ __forceinline__ constexpr int key_place(int element) {
    return EightBits<Cache>::DISTANCE == 1 ? element % 4 / 2 * 8 + element / 4 * 2 + element % 2
                                    : element % 2 * 8 + element / 4 * 2 + element % 4 / 2;
  }
  static __device__ __forceinline__ constexpr int value_place(int element) { return element % 2 * 8 + element / 2; }

  static __device__ __forceinline__ void unpack_keys(unsigned (&to)[STEPS][4], const unsigned (&matrices)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) EightBits<Cache>::widen(matrices[i], to[i % 2][i / 2 * 2], to[i % 2][i / 2 * 2 + 1]);
  }
  static __device__ __forceinline__ void unpack_values(unsigned (&to)[STEPS][4], const unsigned (&matrices)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) widen_even_odd<Cache>(matrices[i], to[i % 2][i / 2 * 2], to[i % 2][i / 2 * 2 + 1]);
  }
};
#endif

// A row of the query's tile, by a warp: zeros where it is not `used`. Returns what its elements have still to be
// multiplied by: a power of two, where numbers of another range become fp16.
template <typename Elements, int SIZE, typename Operand, typename Scalar>
__device__ __forceinline__ float load_query(Operand* tile, int row, const Scalar* query, bool used) {
  constexpr int PADDED = (SIZE + 15) / 16 * 16;
  const int lane = threadIdx.x % WARP_SIZE, size = used ? SIZE : 0;
  float unit = 1.f;
  if (Elements::FP16_ONLY) {
    float largest = 1e-37f;
    for (int i = lane; i < size; i += WARP_SIZE) largest = fmaxf(largest, fabsf(to_float(query[i])));
    unit = __uint_as_float(__float_as_uint(max_over_lanes<1, WARP_SIZE>(largest)) & 0x7f800000u);
  }
  for (int i = lane; i < PADDED; i += WARP_SIZE) {
    const int place = i / 16 * 16 + Elements::key_place(i % 16);
    tile[swizzled<PADDED / 8>(row, place / 8) / 2 + place % 8] =
        from_float<Operand>(i < size ? to_float(query[i]) / unit : 0.f);
  }
  return unit;
}
