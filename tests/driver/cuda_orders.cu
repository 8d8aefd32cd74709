// Pairs of functions: with "bug" the host or a stream does not wait, with "fixed" it does. Lines that
// end in "first" and "second" are the two sides of what is found.
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
    cudaMemset(x, 0, n * 4);
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

static void managed_read(bool fixed) {
  float *x, *y;
  cudaMallocManaged(&x, n * 4);
  cudaMallocManaged(&y, n * 4);
  for (int i = 0; i < n; ++i) x[i] = 1;
  twice<<<n / 256, 256>>>(y, x);  // first: managed_read
  if (fixed) cudaDeviceSynchronize();
  printf("%g\n", total(y));
  cudaFree(x);
  cudaFree(y);
}

static void early_copy(bool fixed) {
  Memory m;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  float *host;
  cudaMallocHost(&host, n * 4);
  cudaMemcpyAsync(host, m.y, n * 4, cudaMemcpyDeviceToHost, stream);  // first: early_copy
  if (fixed) cudaStreamSynchronize(stream);
  printf("%g\n", total(host));
  cudaFreeHost(host);
}

static void pageable(bool fixed) {
  Memory m;
  static float host[n];
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemcpy(m.x, host, n * 4, cudaMemcpyHostToDevice);  // first: pageable
  if (fixed) cudaStreamSynchronize(0);
  twice<<<n / 256, 256, 0, stream>>>(m.y, m.x);  // second: pageable
}

static void default_and_non_blocking(bool fixed) {
  Memory m;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, fixed ? cudaStreamDefault : cudaStreamNonBlocking);
  twice<<<n / 256, 256>>>(m.y, m.x);  // first: default_and_non_blocking
  cudaMemsetAsync(m.y, 0, n * 4, stream);  // second: default_and_non_blocking
}

static void early_free(bool fixed) {
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
}

static void counters(bool fixed) {
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
}

// Slots of page-locked memory that are not whole pages, each filled again when its copy has ended.
static void ring(bool fixed) {
  constexpr int slots = 4, bytes = 1000;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t copied[slots];
  char *host, *device;
  cudaMallocHost(&host, slots * bytes);
  cudaMalloc(&device, slots * bytes);
  for (int i = 0; i < 2 * slots; ++i) {
    const int at = i % slots;
    if (i < slots) cudaEventCreate(&copied[at]);
    if (i >= slots && fixed) cudaEventSynchronize(copied[at]);
    host[at * bytes + 7] = i;  // second: ring
    cudaMemcpyAsync(device + at * bytes, host + at * bytes, bytes, cudaMemcpyHostToDevice, stream);  // first: ring
    cudaEventRecord(copied[at], stream);
  }
  cudaDeviceSynchronize();
}

// Right in both forms: the function runs after the copy in its stream.
static void callback(bool) {
  Memory m;
  static float *host;
  cudaMallocHost(&host, n * 4);
  cudaMemcpyAsync(host, m.y, n * 4, cudaMemcpyDeviceToHost);
  cudaLaunchHostFunc(0, [](void *) { host[0] += host[1]; }, nullptr);
  cudaMemcpyAsync(m.y, host, n * 4, cudaMemcpyHostToDevice);
}

int main(int argc, char **argv) {
  const bool fixed = argc > 1 && !strcmp(argv[1], "fixed");
  managed_read(fixed);
  early_copy(fixed);
  pageable(fixed);
  default_and_non_blocking(fixed);
  early_free(fixed);
  counters(fixed);
  ring(fixed);
  callback(fixed);
  cudaDeviceSynchronize();
}
