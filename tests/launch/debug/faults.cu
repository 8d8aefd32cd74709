// Twelve kernels with a fault each, at the line that says FAULT.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Rows go to columns, with the stride of the rows where that of the columns belongs.
extern "C" __global__ void wrong_index(float* y, const float* x, int rows, int cols) {
  int r = blockIdx.x, c = threadIdx.x;
  if (c < cols) {
    y[c * cols % (rows * cols) + r] = x[r * cols + c];  // FAULT 1
  }
}

// Sums of tiles; without a barrier at the end of the loop the next tile overwrites one that others still read.
extern "C" __global__ void stale_tile(float* y, const float* x, int tiles) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    tile[threadIdx.x] = x[t * 64 + threadIdx.x];  // FAULT 2
    __syncthreads();
    for (int i = 0; i < 64; i += 8) {
      sum += tile[(threadIdx.x + i) % 64];
    }
  }
  y[threadIdx.x] = sum;
}

// The last chunk of a row reaches into the next row.
extern "C" __global__ void missing_mask(float* y, const float* x, int cols) {
  float sum = 0;
  for (int c = threadIdx.x; c < (cols + 31) / 32 * 32; c += 32) {
    sum += x[blockIdx.x * cols + c];  // FAULT 3
  }
  for (int d = 16; d; d /= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
  }
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// Grouped queries: head h reads the keys of h % groups, not of h / group size.
extern "C" __global__ void wrong_head(float* y, const float* keys, int kv_heads, int heads) {
  int head = blockIdx.x;
  int from = head % kv_heads;  // FAULT 4
  y[head * 32 + threadIdx.x] = keys[from * 32 + threadIdx.x] * 2;
}

// The offset of a row does not fit into 32 bits.
extern "C" __global__ void overflowed_offset(float* y, const float* x, int stride) {
  int row = threadIdx.x;
  int offset = row * stride;  // FAULT 5
  y[row] = x[offset];
}

// A softmax that goes on in chunks: the sum so far is not rescaled when a larger score comes.
extern "C" __global__ void lost_rescale(float* y, const float* scores, int count) {
  float most = -1e30f, sum = 0;
  for (int i = 0; i < count; ++i) {
    float score = scores[threadIdx.x * count + i];
    most = fmaxf(most, score);
    sum += __expf(score - most);  // FAULT 6
  }
  y[threadIdx.x] = sum;
}

__device__ unsigned address_of(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

// Waits for the phase after the one that is completed.
extern "C" __global__ void wrong_phase(float* y, const float* x) {
  __shared__ unsigned long long full;
  __shared__ float stage[32];
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address_of(&full)) : "memory");
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    stage[threadIdx.x] = x[threadIdx.x];
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(address_of(&full)) : "memory");
  } else {
    asm volatile(
        "{ .reg .pred over;\nAGAIN: mbarrier.test_wait.parity.shared.b64 over, [%0], 1;\n"
        "@over bra DONE;\nbra AGAIN;\nDONE: }" ::"r"(address_of(&full)) : "memory");  // FAULT 7
    y[threadIdx.x - 32] = stage[threadIdx.x - 32];
  }
}

// A running difference in place: each thread reads what its neighbour has overwritten.
extern "C" __global__ void aliased(float* y, const float* x, int count) {
  for (int i = threadIdx.x; i < count; i += 32) {
    float before = i ? x[i - 1] : 0;  // FAULT 8
    y[i] = x[i] - before;
  }
}

// A padded slot has weight 0 and an infinite value.
extern "C" __global__ void zero_times_infinity(float* y, const float* weights, const float* values, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    float value = values[i * 32 + threadIdx.x];
    sum = sum + weights[i] * value;  // FAULT 9
  }
  y[threadIdx.x] = sum;
}

// A product of two halves beyond 65504.
extern "C" __global__ void half_overflow(float* y, const float* x, float scale) {
  float scaled = x[threadIdx.x] * scale;
  __half narrow = __float2half(scaled);  // FAULT 10
  y[threadIdx.x] = __half2float(narrow) / scale;
}

// A sum of many small numbers in bf16 stops growing.
extern "C" __global__ void bfloat_sum(float* y, const float* x, int count) {
  __nv_bfloat16 total = __float2bfloat16(0);
  for (int i = 0; i < count; ++i) {
    float element = x[i * 32 + threadIdx.x];
    total = __float2bfloat16(__bfloat162float(total) + element);  // FAULT 11
  }
  y[threadIdx.x] = __bfloat162float(total);
}

// Rows of a quantised matrix take the scale of the row before.
extern "C" __global__ void wrong_scale(float* y, const signed char* codes, const float* scales, int cols) {
  int row = blockIdx.x;
  float scale = scales[row ? row - 1 : 0];  // FAULT 12
  y[row * cols + threadIdx.x] = codes[row * cols + threadIdx.x] * scale;
}
