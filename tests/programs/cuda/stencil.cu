// Heat that spreads: five points in two dimensions, with a halo in shared memory; seven in three, with planes passed
// on in registers. Both run a few steps between two arrays.
#include <cmath>
#include <utility>
#include <vector>

#include "check.h"

constexpr int kTile = 16, kSteps = 3;
constexpr float kRate = 0.1f;

__global__ void heat_2d(const float* from, float* to, int width, int height) {
  __shared__ float tile[kTile + 2][kTile + 2];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  const int column = threadIdx.x + 1, row = threadIdx.y + 1;
  const bool inside = x < width && y < height;
  if (inside) {
    tile[row][column] = from[y * width + x];
    if (threadIdx.x == 0 && x > 0) tile[row][0] = from[y * width + x - 1];
    if (threadIdx.x == kTile - 1 && x + 1 < width) tile[row][kTile + 1] = from[y * width + x + 1];
    if (threadIdx.y == 0 && y > 0) tile[0][column] = from[(y - 1) * width + x];
    if (threadIdx.y == kTile - 1 && y + 1 < height) tile[kTile + 1][column] = from[(y + 1) * width + x];
  }
  __syncthreads();
  if (!inside) return;
  const bool edge = x == 0 || y == 0 || x == width - 1 || y == height - 1;
  const float own = tile[row][column];
  to[y * width + x] = edge ? own
                           : own + kRate * (tile[row][column - 1] + tile[row][column + 1] + tile[row - 1][column] +
                                            tile[row + 1][column] - 4 * own);
}

__global__ void heat_3d(const float* from, float* to, int width, int height, int depth) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int plane = width * height, place = y * width + x;
  const bool edge = x == 0 || y == 0 || x == width - 1 || y == height - 1;
  float below, own = from[place], above = from[plane + place];
  to[place] = own;
  for (int z = 1; z < depth - 1; ++z) {
    const int i = z * plane + place;
    below = own;
    own = above;
    above = from[i + plane];
    to[i] =
        edge
            ? own
            : own + kRate * (from[i - 1] + from[i + 1] + from[i - width] + from[i + width] + below + above - 6 * own);
  }
  to[(depth - 1) * plane + place] = above;
}

void heat_on_host(const std::vector<float>& from, std::vector<float>& to, int width, int height, int depth) {
  const int plane = width * height;
  to = from;
  for (int z = 0; z < depth; ++z) {
    if (depth > 1 && (z == 0 || z == depth - 1)) continue;
    for (int y = 1; y < height - 1; ++y) {
      for (int x = 1; x < width - 1; ++x) {
        const int i = z * plane + y * width + x;
        float around = from[i - 1] + from[i + 1] + from[i - width] + from[i + width];
        if (depth > 1) around += from[i - plane] + from[i + plane];
        to[i] = from[i] + kRate * (around - (depth > 1 ? 6 : 4) * from[i]);
      }
    }
  }
}

bool right_for(int width, int height, int depth) {
  std::vector<float> values(width * height * depth), next, found(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i * 31 % 17;
  float *from, *to;
  const std::size_t bytes = values.size() * sizeof(float);
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMemcpy(from, values.data(), bytes, cudaMemcpyHostToDevice));
  const dim3 block(kTile, kTile), grid((width + kTile - 1) / kTile, (height + kTile - 1) / kTile);
  for (int step = 0; step < kSteps; ++step) {
    if (depth == 1) heat_2d<<<grid, block>>>(from, to, width, height);
    if (depth > 1) heat_3d<<<grid, block>>>(from, to, width, height, depth);
    CHECK(cudaGetLastError());
    std::swap(from, to);
    heat_on_host(values, next, width, height, depth);
    std::swap(values, next);
  }
  CHECK(cudaMemcpy(found.data(), from, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
  bool right = true;
  for (std::size_t i = 0; i < values.size(); ++i) right &= std::abs(found[i] - values[i]) < 1e-4f;
  return right;
}

int main() { return judged("stencil", right_for(50, 33, 1) && right_for(16, 16, 1) && right_for(20, 18, 5)); }
