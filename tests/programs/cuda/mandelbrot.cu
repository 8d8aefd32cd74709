// The Mandelbrot set, drawn in letters: threads of a warp leave their loops at different steps. The colours come from
// a table in constant memory, the picture goes to pitched memory.
#include <string>
#include <vector>

#include "check.h"

constexpr int kWidth = 60, kHeight = 24, kSteps = 60, kLetters = 8;

__constant__ char letters[kLetters];

__host__ __device__ int steps_of(int column, int row) {
  const float real = -2.25f + 3.0f * column / kWidth, imaginary = -1.25f + 2.5f * row / kHeight;
  float x = 0, y = 0;
  int steps = 0;
  while (steps < kSteps && x * x + y * y < 4) {
    const float next = x * x - y * y + real;
    y = 2 * x * y + imaginary;
    x = next;
    ++steps;
  }
  return steps;
}

__global__ void draw(char* picture, std::size_t pitch) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= kWidth || row >= kHeight) return;
  picture[row * pitch + column] = letters[steps_of(column, row) * (kLetters - 1) / kSteps];
}

int main() {
  const char chosen[kLetters + 1] = " .:-=+*#";
  char* device;
  std::size_t pitch;
  CHECK(cudaMemcpyToSymbol(letters, chosen, kLetters));
  CHECK(cudaMallocPitch(&device, &pitch, kWidth, kHeight));
  const dim3 block(16, 8);
  draw<<<dim3((kWidth + 15) / 16, (kHeight + 7) / 8), block>>>(device, pitch);
  CHECK(cudaGetLastError());
  std::vector<char> picture(kWidth * kHeight);
  CHECK(cudaMemcpy2D(picture.data(), kWidth, device, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  int different = 0;  // fused multiply-adds may part from the host's roundings at the set's edge
  for (int row = 0; row < kHeight; ++row) {
    std::printf("%s\n", std::string(&picture[row * kWidth], kWidth).c_str());
    for (int column = 0; column < kWidth; ++column) {
      different += picture[row * kWidth + column] != chosen[steps_of(column, row) * (kLetters - 1) / kSteps];
    }
  }
  return judged("mandelbrot", different <= 3 && picture[kHeight / 2 * kWidth + 40] == '#');
}
