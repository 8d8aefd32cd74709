// out[i] = 2 * x[i]: each thread scales VEC_SIZE neighbours. MODE plants a fault for each way that an attempt can end.
// x, out: [count] float.

#if MODE == 2
#error "planted: this configuration does not compile"
#endif

extern "C" __global__ void __launch_bounds__(NUM_THREADS) scale(float* out, const float* x, int count) {
#if MODE == 5
    // The compiler takes it, its assembler does not.
    __shared__ volatile float large[1 << 14];
    large[threadIdx.x] = 0.0f;
#endif
    int first = (blockIdx.x * NUM_THREADS + threadIdx.x) * VEC_SIZE;
#if MODE == 3
    // Far outside of the buffer.
    if (first == 0) out[count + (1 << 28)] = 0.0f;
#elif MODE == 4
    // Spins: the value that it waits for is never written.
    volatile float* flag = out;
    while (flag[0] != 12345.0f) {
    }
#endif
    for (int i = 0; i < VEC_SIZE; ++i) {
#if STRIDED
        int at = blockIdx.x * NUM_THREADS * VEC_SIZE + i * NUM_THREADS + threadIdx.x;
#else
        int at = first + i;
#endif
        if (at < count) out[at] = x[at] * (MODE == 1 ? 3.0f : 2.0f);
    }
}
