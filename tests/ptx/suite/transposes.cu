// out [columns, rows] = in [rows, columns] transposed, by blocks of 32 x 8 threads; and what banks make of a stride.
extern "C" __global__ void transpose_naive(float* out, const float* in, int rows, int columns) {
  int x = blockIdx.x * 32 + threadIdx.x;
  for (int y = blockIdx.y * 32 + threadIdx.y; y < rows && y < blockIdx.y * 32 + 32; y += 8)
    if (x < columns) out[x * rows + y] = in[y * columns + x];  // copy
}
extern "C" __global__ void transpose_tiled(float* out, const float* in, int rows, int columns) {
  // Rows come in and rows go out; the columns are read from shared memory, where all 32 lie in one bank.
  __shared__ float tile[32][32];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (x < columns && y + j < rows) tile[j][threadIdx.x] = in[(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][j];  // copy
}
extern "C" __global__ void transpose_padded(float* out, const float* in, int rows, int columns) {
  // A 33rd word per row puts each row one bank further.
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (x < columns && y + j < rows) tile[j][threadIdx.x] = in[(y + j) * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32;
  for (int j = threadIdx.y; j < 32; j += 8)
    if (x < rows && y + j < columns) out[(y + j) * rows + x] = tile[threadIdx.x][j];  // copy
}
extern "C" __global__ void bank_stride(float* out, const float* in, int stride) {
  // One warp reads every stride-th word of 1024.
  __shared__ float tile[1024];
  int t = threadIdx.x;
  for (int i = t; i < 1024; i += 32) tile[i] = in[i];
  __syncwarp();
  out[t] = tile[t * stride % 1024];  // strided
}
