// Rows of a latent cache in eight bits, as FlashMLA and vLLM have them ("fp8_ds_mla"): the latent as codes of e4m3, a float
// for every 128 of them that they are multiples of, and the other elements of the key in 16 bits.
#pragma once

#include "common/eight_bits.cuh"
#include "common/packing.cuh"

__host__ __device__ constexpr int row_of_codes(int latent_size, int key_size) {
  return latent_size + latent_size / 128 * 4 + (key_size - latent_size) * 2;
}

// Eight values of a stored row, as elements: chunk `chunk` of the row that products read.
template <typename Scalar, int SIZE>
__device__ __forceinline__ uint4 values_of(const unsigned char* row, int chunk) {
  constexpr int CODE_CHUNKS = SIZE / 8, SCALES = SIZE / 128 * 4;
  if (chunk >= CODE_CHUNKS)
    return *reinterpret_cast<const uint4*>(row + SCALES + SIZE + (chunk - CODE_CHUNKS) * 16);
  const float scale =
      *reinterpret_cast<const float*>(row + SIZE + chunk / 16 * 4) * EightBits<__nv_fp8_e4m3>::UNIT;
  const uint2 codes = *reinterpret_cast<const uint2*>(row + chunk * 8);
  unsigned elements[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned even, odd;
    widen_even_odd<__nv_fp8_e4m3>(i ? codes.y : codes.x, even, odd);
    const float2 evens = __half22float2(reinterpret_cast<const __half2&>(even));
    const float2 odds = __half22float2(reinterpret_cast<const __half2&>(odd));
    elements[2 * i] = pack<Scalar>(evens.x * scale, odds.x * scale);
    elements[2 * i + 1] = pack<Scalar>(evens.y * scale, odds.y * scale);
  }
  return make_uint4(elements[0], elements[1], elements[2], elements[3]);
}
