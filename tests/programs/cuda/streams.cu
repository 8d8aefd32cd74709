// Streams that overlap copies and kernels, events that order and time them, host functions, memory of a stream's pool.
#include <vector>

#include "check.h"

constexpr int kStreams = 4, kChunk = 500;

__global__ void scale(float* values, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= by;
}

void CUDART_CB count(void* counter) { ++*static_cast<int*>(counter); }

int main() {
  std::vector<float> values(kStreams * kChunk);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i;
  CHECK(cudaHostRegister(values.data(), values.size() * sizeof(float), cudaHostRegisterDefault));
  cudaStream_t streams[kStreams];
  cudaEvent_t start, end, joined;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CHECK(cudaEventRecord(start));
  int called = 0;
  for (int s = 0; s < kStreams; ++s) {
    CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
    float* device;
    float* host = values.data() + s * kChunk;
    CHECK(cudaMallocAsync(&device, kChunk * sizeof(float), streams[s]));
    CHECK(cudaMemcpyAsync(device, host, kChunk * sizeof(float), cudaMemcpyHostToDevice, streams[s]));
    scale<<<(kChunk + 127) / 128, 128, 0, streams[s]>>>(device, 3, kChunk);
    CHECK(cudaMemcpyAsync(host, device, kChunk * sizeof(float), cudaMemcpyDeviceToHost, streams[s]));
    CHECK(cudaFreeAsync(device, streams[s]));
    CHECK(cudaLaunchHostFunc(streams[s], count, &called));
    CHECK(cudaEventRecord(joined, streams[s]));
    CHECK(cudaStreamWaitEvent(nullptr, joined));
  }
  CHECK(cudaEventRecord(end));
  CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end));
  bool right = milliseconds > 0 && called == kStreams;
  for (std::size_t i = 0; i < values.size(); ++i) right &= values[i] == 3.0f * i;
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaHostUnregister(values.data()));
  return judged("streams", right);
}
