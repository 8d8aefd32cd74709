// A softmax of rows, right as it stands.
extern "C" __global__ void softmax(float* y, const float* x, int cols) {
  __shared__ float part[8];
  const float* row = x + blockIdx.x * cols;
  float most = -1e30f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    most = fmaxf(most, row[c]);
  }
  for (int d = 16; d; d /= 2) {
    most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  }
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  for (int w = 0; w < blockDim.x / 32; ++w) {
    most = fmaxf(most, part[w]);
  }
  float sum = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    sum += expf(row[c] - most);
  }
  for (int d = 16; d; d /= 2) {
    sum += __shfl_xor_sync(~0u, sum, d);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) {
    total += part[w];
  }
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    y[blockIdx.x * cols + c] = expf(row[c] - most) / total;
  }
}
