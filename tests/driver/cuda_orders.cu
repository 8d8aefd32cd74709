// Pairs of functions: with "bug" the host or a stream does not wait, with "fixed" it does. Lines that
// end in "first" and "second" are the two sides of what is found. Each returns the sum of what its
// operations leave behind.
#include <cstdio>
#include <cstring>

constexpr int n = 1 << 12;

__global__ void twice(float *y, const float *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

__global__ void count(int *counter) { atomicAdd(counter, 1); }

struct Memory {
  float *x, *y;
  Memory() {
    cudaMalloc(&x, n * 4);
    cudaMalloc(&y, n * 4);
    cudaMemset(x, 0x40, n * 4);
    cudaMemset(y, 0, n * 4);
    cudaDeviceSynchronize();
  }
  ~Memory() {
    cudaDeviceSynchronize();
    cudaFree(x);
    cudaFree(y);
  }
};

static float total(const float *values) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += values[i];  // second: managed_read, early_copy
  return sum;
}

// The sum on the device, once all has run; -1 after a fault.
static float held(const float *device) {
  static float host[n];
  cudaDeviceSynchronize();
  if (cudaMemcpy(host, device, n * 4, cudaMemcpyDeviceToHost)) return -1;
  float sum = 0;
  for (float one : host) sum += one;
  return sum;
}

static float managed_read(bool fixed) {
  float *x, *y;
  cudaMallocManaged(&x, n * 4);
  cudaMallocManaged(&y, n * 4);
  for (int i = 0; i < n; ++i) x[i] = 1;
  twice<<<n / 256, 256>>>(y, x);  // first: managed_read
  if (fixed) cudaDeviceSynchronize();
  const float sum = total(y);
  cudaFree(x);
  cudaFree(y);
  return sum;
}

static float early_copy(bool fixed) {
  Memory m;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *host;
  cudaMallocHost(&host, n * 4);
  cudaMemcpyAsync(host, m.x, n * 4, cudaMemcpyDeviceToHost, stream);  // first: early_copy
  if (fixed) cudaStreamSynchronize(stream);
  const float sum = total(host);
  cudaFreeHost(host);
  return sum;
}

static float pageable(bool fixed) {
  Memory m;
  static float host[n];
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemcpy(m.x, host, n * 4, cudaMemcpyHostToDevice);  // first: pageable
  if (fixed) cudaStreamSynchronize(0);
  twice<<<n / 256, 256, 0, stream>>>(m.y, m.x);  // second: pageable
  return held(m.y);
}

static float default_and_non_blocking(bool fixed) {
  Memory m;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, fixed ? cudaStreamDefault : cudaStreamNonBlocking);
  twice<<<n / 256, 256>>>(m.y, m.x);  // first: default_and_non_blocking
  cudaMemsetAsync(m.y, 0, n * 4, stream);  // second: default_and_non_blocking
  return held(m.y);
}

static float early_free(bool fixed) {
  Memory m;
  cudaStream_t one, two;
  cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
  cudaEvent_t made, done;
  cudaEventCreate(&made);
  cudaEventCreate(&done);
  float *x;
  cudaMallocAsync(&x, n * 4, one);
  cudaMemsetAsync(x, 0, n * 4, one);
  cudaEventRecord(made, one);
  cudaStreamWaitEvent(two, made);
  twice<<<n / 256, 256, 0, two>>>(m.y, x);  // first: early_free
  cudaEventRecord(done, two);
  if (fixed) cudaStreamWaitEvent(one, done);
  cudaFreeAsync(x, one);  // second: early_free
  return held(m.y);
}

static float counters(bool fixed) {
  int *counter;
  cudaMalloc(&counter, 4);
  cudaMemset(counter, 0, 4);
  cudaDeviceSynchronize();
  cudaStream_t one, two;
  cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
  count<<<1, 32, 0, one>>>(counter);  // first: counters
  if (fixed)
    count<<<1, 32, 0, two>>>(counter);
  else
    cudaMemsetAsync(counter, 0, 4, two);  // second: counters
  cudaDeviceSynchronize();
  int counted;
  cudaMemcpy(&counted, counter, 4, cudaMemcpyDeviceToHost);
  return counted;
}

// Slots of page-locked memory that are not whole pages, each filled again when its copy has ended.
static float ring(bool fixed) {
  constexpr int slots = 4, bytes = 1000;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t copied[slots];
  char *host, *device;
  cudaMallocHost(&host, slots * bytes);
  cudaMalloc(&device, 2 * slots * bytes);
  cudaMemset(device, 0, 2 * slots * bytes);
  cudaDeviceSynchronize();
  for (int i = 0; i < 2 * slots; ++i) {
    const int at = i % slots;
    if (i < slots) cudaEventCreate(&copied[at]);
    if (i >= slots && fixed) cudaEventSynchronize(copied[at]);
    host[at * bytes + 7] = i;  // second: ring
    cudaMemcpyAsync(device + i * bytes, host + at * bytes, bytes, cudaMemcpyHostToDevice, stream);  // first: ring
    cudaEventRecord(copied[at], stream);
  }
  cudaDeviceSynchronize();
  static char copies[2 * slots * bytes];
  cudaMemcpy(copies, device, sizeof copies, cudaMemcpyDeviceToHost);
  float sum = 0;
  for (char one : copies) sum += one;
  return sum;
}

// Right in both forms: the function runs after the copy in its stream.
static float callback(bool) {
  Memory m;
  static float *host;
  cudaMallocHost(&host, n * 4);
  cudaMemcpyAsync(host, m.x, n * 4, cudaMemcpyDeviceToHost);
  cudaLaunchHostFunc(0, [](void *) { host[0] += host[1]; }, nullptr);
  cudaMemcpyAsync(m.y, host, n * 4, cudaMemcpyHostToDevice);
  return held(m.y);
}

// A graph copies from page-locked memory that is freed before its launch.
static float graph_of_host(bool fixed) {
  Memory m;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *host;
  if (cudaMallocHost(&host, n * 4)) return -1;
  memset(host, 0x40, n * 4);
  cudaGraph_t graph;
  cudaGraphExec_t launched;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaMemcpyAsync(m.y, host, n * 4, cudaMemcpyHostToDevice, stream);  // first: graph_of_host
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&launched, graph, 0);
  if (!fixed) cudaFreeHost(host);
  cudaGraphLaunch(launched, stream);  // second: graph_of_host
  return held(m.y);
}

int main(int argc, char **argv) {
  const bool fixed = argc > 1 && !strcmp(argv[1], "fixed");
#define SHOW(pair) printf("%s %s %g\n", #pair, fixed ? "fixed" : "bug", pair(fixed))
  SHOW(managed_read);
  SHOW(early_copy);
  SHOW(pageable);
  SHOW(default_and_non_blocking);
  SHOW(counters);
  SHOW(ring);
  SHOW(callback);
  SHOW(early_free);  // with --late a launch faults, and nothing runs after it
  SHOW(graph_of_host);
  cudaDeviceSynchronize();
}
