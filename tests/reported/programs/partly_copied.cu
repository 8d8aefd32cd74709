// n / 256 blocks of n = 1000 threads: the tail of `out` is copied to the host unwritten. Then a guard that is
// missing: `in` is read past its end. "fixed" rounds up, and guards.
#include <cstdio>
#include <cstring>
#include <vector>

struct Point { double at; char kind; };  // 7 bytes of padding, which nobody writes

__global__ void twice(float *out, const float *in, int n, bool guarded) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (!guarded || i < n) out[i] = 2 * in[i];
}
__global__ void place(Point *points) {
  points[threadIdx.x].at = threadIdx.x, points[threadIdx.x].kind = 'p';
}

int main(int, char **words) {
  const bool fixed = !std::strcmp(words[1], "fixed");
  const int n = 1000;
  float *in, *out, *wide;
  std::vector<float> host(n, 1.0f);
  cudaMalloc(&out, n * sizeof(float));
  cudaMalloc(&in, n * sizeof(float));
  cudaMemcpy(in, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  const int blocks = fixed ? (n + 255) / 256 : n / 256;
  twice<<<blocks, 256>>>(out, in, n, true);

  cudaMemcpy(host.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost);
  float sum = 0;
  for (float one : host) sum += one;
  std::printf("sum %g\n", sum);

  Point *points, of_host[64];
  cudaMalloc(&points, sizeof of_host);
  place<<<1, 64>>>(points);
  cudaMemcpy(of_host, points, sizeof of_host, cudaMemcpyDeviceToHost);
  cudaMalloc(&wide, 1024 * sizeof(float));
  if (!fixed) twice<<<4, 256>>>(wide, in, n, false);
  return of_host[63].at == 63 ? 0 : 1;
}
