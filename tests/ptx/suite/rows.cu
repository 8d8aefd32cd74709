// What a language model does to rows [rows, columns].
constexpr int BLOCK = 128;

__device__ void merge(float& most, float& sum, float other_most, float other_sum) {
  // Two softmax states (maximum, sum of exp(x - maximum)) into one.
  float both = fmaxf(most, other_most);
  sum = sum * __expf(most - both) + other_sum * __expf(other_most - both);
  most = both;
}
extern "C" __global__ void softmax_online(float* out, const float* in, int columns) {
  // One block per row and one pass for maximum and sum.
  __shared__ float mosts[BLOCK / 32], sums[BLOCK / 32];
  int t = threadIdx.x;
  const float* row = in + blockIdx.x * columns;
  float most = -1e30f, sum = 0.f;
  for (int i = t; i < columns; i += BLOCK) merge(most, sum, row[i], 1.f);  // pass
  for (int s = 16; s > 0; s /= 2) {
    float other_most = __shfl_xor_sync(0xffffffff, most, s);
    merge(most, sum, other_most, __shfl_xor_sync(0xffffffff, sum, s));
  }
  if (t % 32 == 0) mosts[t / 32] = most, sums[t / 32] = sum;
  __syncthreads();
  most = mosts[0], sum = sums[0];
  for (int w = 1; w < BLOCK / 32; w++) merge(most, sum, mosts[w], sums[w]);
  for (int i = t; i < columns; i += BLOCK) out[blockIdx.x * columns + i] = __expf(row[i] - most) / sum;
}
__device__ float block_sum(float x, float* partial) {
  // The sum over the block, in every thread; the caller sees that nobody still reads partial.
  for (int s = 16; s > 0; s /= 2) x += __shfl_xor_sync(0xffffffff, x, s);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  return partial[0] + partial[1] + partial[2] + partial[3];
}
extern "C" __global__ void layer_norm(float* out, const float* in, const float* weight, const float* bias, int columns) {
  __shared__ float partial[BLOCK / 32];
  int t = threadIdx.x;
  const float* row = in + blockIdx.x * columns;
  float x = 0.f;
  for (int i = t; i < columns; i += BLOCK) x += row[i];
  float mean = block_sum(x, partial) / columns;
  __syncthreads();
  x = 0.f;
  for (int i = t; i < columns; i += BLOCK) x += (row[i] - mean) * (row[i] - mean);
  float scale = rsqrtf(block_sum(x, partial) / columns + 1e-5f);
  for (int i = t; i < columns; i += BLOCK)
    out[blockIdx.x * columns + i] = (row[i] - mean) * scale * weight[i] + bias[i];  // store
}
extern "C" __global__ void rms_norm(float* out, const float* in, const float* weight, int rows, int columns) {
  // One warp per row; no barrier at all.
  int lane = threadIdx.x % 32, row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= rows) return;
  float x = 0.f;
  for (int i = lane; i < columns; i += 32) x += in[row * columns + i] * in[row * columns + i];
  for (int s = 16; s > 0; s /= 2) x += __shfl_xor_sync(0xffffffff, x, s);  // sum
  float scale = rsqrtf(x / columns + 1e-6f);
  for (int i = lane; i < columns; i += 32) out[row * columns + i] = in[row * columns + i] * scale * weight[i];
}
extern "C" __global__ void rope(float* heads, const int* positions, const float* cos_sin, int num_heads, int head_size) {
  // heads [tokens, num_heads, head_size], in place: element i and i + head_size / 2 turn together by the angle of the
  // token's position; cos_sin [positions, head_size] holds half a row of cosines, then half of sines. Block per token.
  int half = head_size / 2;
  const float* turn = cos_sin + positions[blockIdx.x] * head_size;
  for (int i = threadIdx.x; i < num_heads * half; i += blockDim.x) {
    float* head = heads + (blockIdx.x * num_heads + i / half) * head_size;
    int j = i % half;
    float x = head[j], y = head[j + half], c = turn[j], s = turn[j + half];
    head[j] = x * c - y * s;  // turn
    head[j + half] = y * c + x * s;
  }
}
