// Launches that the driver refuses, one for each kind of limit, and what the program does about the error.
#include <cooperative_groups.h>

#include <cstdio>
#include <cstring>

extern __shared__ float room[];
__global__ void large(float *x) { room[threadIdx.x] = 1, x[threadIdx.x] = room[threadIdx.x]; }
__global__ void __launch_bounds__(128) bounded(float *x) { x[threadIdx.x] = 1; }
__global__ void together(float *x) { cooperative_groups::this_grid().sync(), x[threadIdx.x] = 1; }
__global__ void plain(float *x) { x[threadIdx.x] = 1; }
__global__ void beyond(float *x) { x[1 << 28] = 1; }

int main(int argc, char **argv)
{
    const char *form = argc > 1 ? argv[1] : "unasked";
    float *x, back = 0;
    cudaMalloc(&x, 4096);
    cudaMemset(x, 0, 4096);
    if (!strcmp(form, "unasked")) {
        large<<<1, 32, 50000>>>(x);
        bounded<<<1, 256>>>(x);
        plain<<<1, dim3(32, 1, 65)>>>(x);
        void *arguments[] = {&x};
        cudaLaunchCooperativeKernel((void *)together, 1 << 20, 32, arguments, 0, 0);
        cudaLaunchConfig_t config = {};
        config.gridDim = 4, config.blockDim = 32;
        cudaLaunchAttribute cluster;
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = 3, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        config.attrs = &cluster, config.numAttrs = 1;
        cudaLaunchKernelEx(&config, plain, x);
    } else if (!strcmp(form, "overwritten")) {
        plain<<<70000, 2000>>>(x);
        void *too_much;
        cudaMalloc(&too_much, size_t(1) << 60);
        printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    } else if (!strcmp(form, "asked")) {  // a probe: the first size that fits
        int threads = 4096;
        do {
            plain<<<1, threads>>>(x);
            threads /= 2;
        } while (cudaGetLastError() != cudaSuccess);
    } else if (!strcmp(form, "peeked")) {
        plain<<<0, 32>>>(x);
        if (cudaPeekAtLastError() == cudaSuccess) return 3;
    } else {  // an illegal access is known as soon as its launch returns
        beyond<<<1, 1>>>(x);
        printf("%s\n", cudaGetErrorName(cudaGetLastError()));
        return 0;
    }
    cudaMemcpy(&back, x, 4, cudaMemcpyDeviceToHost);
    printf("x is %g\n", back);
}
