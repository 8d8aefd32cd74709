// Device functions that the compiler must not inline, recursion, printf and assert.
#include <assert.h>
struct Parts {
  float x, y;
  int z[3];
};
__device__ __noinline__ Parts make(float a, int b) {
  Parts p;
  p.x = a, p.y = a * 2, p.z[0] = b, p.z[1] = b + 1, p.z[2] = b + 2;
  return p;
}
__device__ __noinline__ float use(Parts p, const float* q) { return p.x + p.y + p.z[2] + q[threadIdx.x]; }
__device__ __noinline__ int collatz(int n) {
  int steps = 0;
  while (n > 1) n = n % 2 ? 3 * n + 1 : n / 2, steps++;
  return steps;
}
__device__ __noinline__ int share(int x) {
  __shared__ int tile[64];
  tile[threadIdx.x] = x;
  __syncthreads();
  return tile[threadIdx.x ^ 33];
}
__device__ __noinline__ int fib(int n) {
  if (n < 2) return n;
  int before = fib(n - 1);
  return before + fib(n - 2);
}
__device__ __noinline__ void hanoi(int n, int a, int b, int c, int* moves) {
  // The pointer leads into the frame of the first caller.
  if (n == 0) return;
  hanoi(n - 1, a, c, b, moves);
  moves[0] += 1, moves[1] = moves[1] * 3 + a * 7 + b;
  hanoi(n - 1, c, b, a, moves);
}
__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }
__device__ __noinline__ int endless(int n) { return n + endless(n + 1) * 3; }

extern "C" __global__ void calls(int* out, float* numbers) {
  int t = threadIdx.x;
  out[t] = collatz(t + 1);
  if (t % 3 == 0) out[t] += collatz(2 * t + 1) * 1000;
  numbers[t] = use(make(t, 2), numbers);
  out[64 + t] = share(t * 5);
}
extern "C" __global__ void recursion(int* out) {
  int t = threadIdx.x, moves[2] = {0, t};
  hanoi(t % 5, 1, 2, 3, moves);
  out[t] = fib(t % 12), out[64 + t] = moves[0], out[128 + t] = moves[1], out[192 + t] = even(t);
}
extern "C" __global__ void forever(int* out) { out[0] = endless(out[0]); }  // overflow
extern "C" __global__ void prints(int* out) {
  int t = threadIdx.x;
  if (t % 2) printf("%d|%5u|%-4x|%c|%s|%%|%lld\n", -t, 7u, 255, 'a' + t, "text", 1ll << 40);
  printf("%.3f %*d %8.2e\n", 0.5f * t + blockIdx.x, 4, t, 12345.678);
  out[t] = printf("%d %d\n", 1, 2);
}
extern "C" __global__ void asserts(int* out) {
  int t = threadIdx.x;
  assert(out[t] < 5);  // assertion
  out[t] = 1;
}
extern "C" __global__ void heap(int** out) { out[threadIdx.x] = (int*)malloc(16); }
__device__ int plus_one(int x) { return x + 1; }
__device__ int plus_two(int x) { return x + 2; }
typedef int (*Pointer)(int);
__device__ Pointer table[2] = {plus_one, plus_two};
extern "C" __global__ void indirect(int* out) {
  int t = threadIdx.x;
  if (t % 5) out[t] = table[out[t] & 1](t);
}
struct Shape {
  int scale;
  __device__ __noinline__ virtual float area(float x) { return scale * x; }
  __device__ __noinline__ virtual void add(int* out) { atomicAdd(out, 1); }
};
struct Square : Shape {
  __device__ __noinline__ float area(float x) override { return x * x; }
  __device__ __noinline__ void add(int* out) override { atomicAdd(out, 100); }
};
extern "C" __global__ void virtuals(int* out, float* numbers) {
  Shape one;
  Square other;
  one.scale = 3;
  Shape* shape = threadIdx.x % 3 ? &one : &other;
  numbers[threadIdx.x] = shape->area(threadIdx.x);
  shape->add(out);
}
typedef int (*Again)(int, void*);
__device__ __noinline__ int down(int n, Again next, void* self) { return n <= 0 ? 0 : n + next(n - 1, self); }
__device__ int again(int n, void* self) { return down(n, (Again)self, self); }
extern "C" __global__ void through_itself(int* out) { out[threadIdx.x] = again(threadIdx.x % 7, (void*)again); }
extern "C" __global__ void wild(long long* to) {
  to[threadIdx.x] = ((Pointer)to[threadIdx.x])(1);  // to nowhere
}
