// Kernels whose memory behaviour is worked out by hand (one warp each).
extern "C" __global__ void coalesced(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }
extern "C" __global__ void stride_two(float* out, const float* in) { out[threadIdx.x] = in[2 * threadIdx.x]; }
extern "C" __global__ void vectors(float4* out, const float4* in) { out[threadIdx.x] = in[threadIdx.x]; }
extern "C" __global__ void misaligned(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x + 1]; }
extern "C" __global__ void column(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x * 32 + 5]; }
extern "C" __global__ void x_layout(float* out, const uint2* in) {
  // K [head_size / 8, 16 tokens, 8] in 16 bits: two lanes per token, 8 bytes each.
  uint2 word = in[threadIdx.x / 2 * 2 + threadIdx.x % 2];
  out[threadIdx.x] = word.x + word.y;
}
extern "C" __global__ void shared_banks(float* out, const float* in) {
  __shared__ float tile[32 * 32];
  __shared__ float padded[32 * 33];
  __shared__ float4 wide[32];
  int t = threadIdx.x;
  for (int r = 0; r < 32; r++) {
    tile[r * 32 + t] = in[r * 32 + t];
    padded[r * 33 + t] = in[r * 32 + t];
  }
  wide[t] = ((const float4*)in)[t];
  __syncthreads();
  float a = tile[t * 32 + 3];    // column
  float b = padded[t * 33 + 3];  // padded column
  float c = tile[t * 2];         // stride two
  float4 d = wide[t];            // float4
  float e = tile[7];             // broadcast
  out[t] = a + b + c + d.x + d.y + d.z + d.w + e;
}
