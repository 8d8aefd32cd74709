// A separable convolution: rows, then columns, by weights in constant memory; the dynamic shared memory has each row
// of a tile with its apron. What lies outside of the image counts as zero.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kRadius = 3, kWidth = 61, kHeight = 40, kThreads = 32;

__constant__ float weights[2 * kRadius + 1];

__global__ void convolve(const float* in, float* out, int length, int step, int lines, int line_step) {
  extern __shared__ float apron[];
  float* line = apron + threadIdx.y * (blockDim.x + 2 * kRadius);
  const int which = blockIdx.y * blockDim.y + threadIdx.y, first = blockIdx.x * blockDim.x;
  for (int i = threadIdx.x; i < blockDim.x + 2 * kRadius; i += blockDim.x) {
    const int place = first + i - kRadius;
    line[i] = which < lines && place >= 0 && place < length ? in[which * line_step + place * step] : 0;
  }
  __syncthreads();
  const int place = first + threadIdx.x;
  if (which >= lines || place >= length) return;
  float sum = 0;
  for (int i = 0; i <= 2 * kRadius; ++i) sum += weights[i] * line[threadIdx.x + i];
  out[which * line_step + place * step] = sum;
}

int main() {
  const float chosen[2 * kRadius + 1] = {0.5f, -1, 2, 4, 2, -1, 0.25f};
  std::vector<float> image(kWidth * kHeight), found(image.size());
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = i * 29 % 23;
  float *first, *second;
  const std::size_t bytes = image.size() * sizeof(float);
  CHECK(cudaMalloc(&first, bytes));
  CHECK(cudaMalloc(&second, bytes));
  CHECK(cudaMemcpyToSymbol(weights, chosen, sizeof chosen));
  CHECK(cudaMemcpy(first, image.data(), bytes, cudaMemcpyHostToDevice));
  const dim3 block(kThreads, 4);
  const std::size_t shared = block.y * (block.x + 2 * kRadius) * sizeof(float);
  convolve<<<dim3((kWidth + 31) / 32, (kHeight + 3) / 4), block, shared>>>(first, second, kWidth, 1, kHeight, kWidth);
  convolve<<<dim3((kHeight + 31) / 32, (kWidth + 3) / 4), block, shared>>>(second, first, kHeight, kWidth, kWidth, 1);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found.data(), first, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(first));
  CHECK(cudaFree(second));
  bool right = true;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      double sum = 0;
      for (int dy = -kRadius; dy <= kRadius; ++dy) {
        for (int dx = -kRadius; dx <= kRadius; ++dx) {
          if (y + dy < 0 || y + dy >= kHeight || x + dx < 0 || x + dx >= kWidth) continue;
          sum += double{chosen[dy + kRadius]} * chosen[dx + kRadius] * image[(y + dy) * kWidth + x + dx];
        }
      }
      right &= std::abs(found[y * kWidth + x] - sum) < 1e-2;
    }
  }
  return judged("convolution", right);
}
