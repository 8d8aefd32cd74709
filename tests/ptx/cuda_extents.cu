// Accesses that leave their own array and stay in memory of the kernel. `at` is the element that
// each kernel touches; half of the tests take one inside of its array.
struct Pair { int first[4], second[4]; };

__device__ int table[8];
__device__ int behind[4096];
__constant__ int coefficients[8];
__constant__ int others[1024];

__device__ void fill(int *a, int *b, int *c)
{
    if (threadIdx.x < 8) a[threadIdx.x] = b[threadIdx.x] = c[threadIdx.x] = 0;
    __syncthreads();
}

#define ARRAYS                                       \
    __shared__ int before[8], counts[8], after[8];  \
    fill(before, counts, after)
#define RESULT                                       \
    __syncthreads();                                 \
    if (threadIdx.x < 8) out[threadIdx.x] = before[threadIdx.x] + counts[threadIdx.x] + after[threadIdx.x]

extern "C" __global__ void stores(int *out, int at)
{
    ARRAYS;
    if (threadIdx.x == 0) counts[at] = 1;  // stores
    RESULT;
}
extern "C" __global__ void loads(int *out, int at)
{
    ARRAYS;
    int value = counts[at + threadIdx.x % 2];  // loads
    RESULT + value;
}
extern "C" __global__ void counts_up(int *out, int at)
{
    ARRAYS;
    atomicAdd(&counts[at], 1);  // counts_up
    RESULT;
}
extern "C" __global__ void widens(int *out, int at)
{
    __shared__ __align__(16) int before[8], counts[8], after[8];
    fill(before, counts, after);
    int4 four = *reinterpret_cast<int4 *>(&counts[at / 4 * 4]);  // widens
    RESULT + four.x + four.w;
}
extern "C" __global__ void walks(int *out, int at)
{
    ARRAYS;
    int *p = counts, sum = 0;
    for (int i = 0; i <= at; ++i) sum += *p++;  // walks
    RESULT + sum;
}
extern "C" __global__ void generic(int *out, int at)
{
    ARRAYS;
    int *p = counts + at, value;
    asm volatile("ld.s32 %0, [%1];" : "=r"(value) : "l"(p));  // generic
    RESULT + value;
}
extern "C" __global__ void copies(int *out, int at)
{
    ARRAYS;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(counts + at));
    if (threadIdx.x == 0) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(out));  // copies
    asm volatile("cp.async.wait_all;");
    RESULT;
}
extern "C" __global__ void goes_beyond(int *out, int at)
{
    extern __shared__ int dynamic[];
    __shared__ int counts[8];
    if (threadIdx.x < 8) counts[threadIdx.x] = dynamic[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x == 0) counts[at] = 1;  // goes_beyond
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = counts[threadIdx.x] + dynamic[threadIdx.x];
}

// Programs may mean these: one array that is carved by hand, a struct, a choice between two arrays.
extern "C" __global__ void carved(int *out, int at)
{
    extern __shared__ int dynamic[];
    __shared__ int total[1];
    int *first = dynamic, *second = dynamic + 8;
    if (threadIdx.x < 8) first[threadIdx.x] = second[threadIdx.x] = 0;
    if (threadIdx.x == 0) total[0] = 0;
    __syncthreads();
    if (threadIdx.x == 0) first[at] = 1, total[0] = 2;
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x] + total[0];
}
extern "C" __global__ void of_a_struct(int *out, int at)
{
    __shared__ Pair pair;
    __shared__ int total[1];
    if (threadIdx.x < 4) pair.first[threadIdx.x] = pair.second[threadIdx.x] = total[0] = 0;
    __syncthreads();
    if (threadIdx.x == 0) pair.first[at % 8] = 1, total[0] = 2;
    __syncthreads();
    if (threadIdx.x < 4) out[threadIdx.x] = pair.first[threadIdx.x] + pair.second[threadIdx.x] + total[0];
}
extern "C" __global__ void chosen(int *out, int at)
{
    ARRAYS;
    int *p = at > 7 ? after : counts;
    if (threadIdx.x == 0) p[at % 8] = 1;
    RESULT;
}
extern "C" __global__ void two_buffers(int *out, int at)
{
    __shared__ int even[8], odd[8], sum[8];
    fill(even, odd, sum);
    int *from = even, *to = odd;
    for (int i = 0; i < at; ++i) {
        if (threadIdx.x < 8) to[threadIdx.x] = from[threadIdx.x] + 1;
        __syncthreads();
        int *old = from;
        from = to, to = old;
    }
    if (threadIdx.x < 8) out[threadIdx.x] = from[threadIdx.x] + sum[threadIdx.x];
}

extern "C" __global__ void of_device(int *out, int at)
{
    table[at] = 1;  // of_device
    out[threadIdx.x] = behind[threadIdx.x];
}
extern "C" __global__ void of_constant(int *out, int at)
{
    out[threadIdx.x] = coefficients[at] + others[threadIdx.x];  // of_constant
}
extern "C" __global__ void of_arguments(int *keys, const int *values, int at)
{
    keys[at] = values[threadIdx.x];  // of_arguments
}
extern "C" __global__ void between(const int *keys, const int *values, int *out, int at)
{
    out[threadIdx.x] = keys[at] + *(keys + (values - keys) + threadIdx.x);  // between
}
