// Neighbourhoods: tiles with a halo in shared memory. Beyond the edge everything is zero.
constexpr int BLOCK = 128, RADIUS = 3;

extern "C" __global__ void stencil_1d(float* out, const float* in, int n) {
  // The sum of 7 neighbours.
  __shared__ float tile[BLOCK + 2 * RADIUS];
  int t = threadIdx.x, base = blockIdx.x * BLOCK;
  for (int j = t; j < BLOCK + 2 * RADIUS; j += BLOCK) {
    int i = base + j - RADIUS;
    tile[j] = i >= 0 && i < n ? in[i] : 0.f;  // load
  }
  __syncthreads();
  float sum = 0.f;
  for (int j = 0; j <= 2 * RADIUS; j++) sum += tile[t + j];
  if (base + t < n) out[base + t] = sum;
}
extern "C" __global__ void stencil_2d(float* out, const float* in, int height, int width) {
  // Five points, 16 x 8 per block. The corners of the halo are not needed.
  __shared__ float tile[10][18];
  int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 16 + x, row = blockIdx.y * 8 + y;
  auto at = [&](int r, int c) { return r >= 0 && r < height && c >= 0 && c < width ? in[r * width + c] : 0.f; };
  tile[y + 1][x + 1] = at(row, column);
  if (x == 0) tile[y + 1][0] = at(row, column - 1);
  if (x == 15) tile[y + 1][17] = at(row, column + 1);
  if (y == 0) tile[0][x + 1] = at(row - 1, column);
  if (y == 7) tile[9][x + 1] = at(row + 1, column);
  __syncthreads();
  float sum = tile[y][x + 1] + tile[y + 2][x + 1] + tile[y + 1][x] + tile[y + 1][x + 2];
  if (row < height && column < width) out[row * width + column] = sum - 4.f * tile[y + 1][x + 1];  // store
}
extern "C" __global__ void stencil_3d(float* out, const float* in, int depth, int height, int width) {
  // Seven points. A block walks along z: its plane is in shared memory, the ones before and behind in registers.
  __shared__ float tile[8][16];
  int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 14 + x - 1, row = blockIdx.y * 6 + y - 1;
  bool inside = column >= 0 && column < width && row >= 0 && row < height;
  int plane = height * width, i = row * width + column;
  float behind = 0.f, here = inside ? in[i] : 0.f;
  bool inner = x > 0 && x < 15 && y > 0 && y < 7;
  for (int z = 0; z < depth; z++) {
    float ahead = inside && z + 1 < depth ? in[(z + 1) * plane + i] : 0.f;  // load
    tile[y][x] = here;
    __syncthreads();
    if (inside && inner) {
      float around = tile[y][x - 1] + tile[y][x + 1] + tile[y - 1][x] + tile[y + 1][x];
      out[z * plane + i] = around + behind + ahead - 6.f * here;
    }
    __syncthreads();
    behind = here, here = ahead;
  }
}
__constant__ float weights[9];
extern "C" __global__ void convolve(float* out, const float* in, int n) {
  // Nine weights, the same for all lanes: one word of constant memory at a time. Only where all nine meet the array.
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n - 8) {
    float sum = 0.f;
    for (int j = 0; j < 9; j++) sum += weights[j] * in[i + j];  // product
    out[i] = sum;
  }
}
