// A layer of a network, y = relu(W x + b), by cuBLAS and by cuBLASLt, checked against loops; the
// kernel between the two reads what one of them wrote.
// nvcc: -lcublas -lcublasLt
// needs: cublas_v2.h
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cmath>
#include <vector>

#include "check.h"

#define CUBLAS(call)                                                                              \
  if (cublasStatus_t status = (call)) {                                                           \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cublasGetStatusName(status));         \
    std::exit(EXIT_FAILURE);                                                                      \
  }

constexpr int kOut = 37, kIn = 50, kBatch = 21;

__global__ void bias_and_relu(float* y, const float* bias) {
  const int row = threadIdx.x, column = blockIdx.x;
  const float value = y[column * kOut + row] + bias[row];
  y[column * kOut + row] = value > 0 ? value : 0;
}

int main() {
  float *w, *x, *bias, *y, *fused;
  CHECK(cudaMallocManaged(&w, kOut * kIn * sizeof(float)));
  CHECK(cudaMallocManaged(&x, kIn * kBatch * sizeof(float)));
  CHECK(cudaMallocManaged(&bias, kOut * sizeof(float)));
  CHECK(cudaMallocManaged(&y, kOut * kBatch * sizeof(float)));
  CHECK(cudaMallocManaged(&fused, kOut * kBatch * sizeof(float)));
  for (int i = 0; i < kOut * kIn; ++i) w[i] = (i * 7 % 11 - 5) / 8.f;
  for (int i = 0; i < kIn * kBatch; ++i) x[i] = (i * 5 % 13 - 6) / 4.f;
  for (int i = 0; i < kOut; ++i) bias[i] = i % 5 - 2;

  const float one = 1, zero = 0;
  cublasHandle_t handle;
  CUBLAS(cublasCreate(&handle));
  CUBLAS(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, kOut, kBatch, kIn, &one, w, kIn, x, kIn,
                     &zero, y, kOut));
  bias_and_relu<<<kBatch, kOut>>>(y, bias);
  CHECK(cudaGetLastError());

  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t layouts[3];
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  CUBLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  CUBLAS(cublasLtMatrixLayoutCreate(&layouts[0], CUDA_R_32F, kIn, kOut, kIn));
  CUBLAS(cublasLtMatrixLayoutCreate(&layouts[1], CUDA_R_32F, kIn, kBatch, kIn));
  CUBLAS(cublasLtMatrixLayoutCreate(&layouts[2], CUDA_R_32F, kOut, kBatch, kOut));
  CUBLAS(cublasLtMatmul((cublasLtHandle_t)handle, operation, &one, w, layouts[0], x, layouts[1],
                        &zero, fused, layouts[2], fused, layouts[2], nullptr, nullptr, 0, 0));
  CHECK(cudaDeviceSynchronize());

  bool right = true;
  for (int column = 0; column < kBatch; ++column) {
    for (int row = 0; row < kOut; ++row) {
      double sum = bias[row];
      for (int i = 0; i < kIn; ++i) sum += double{w[row * kIn + i]} * x[column * kIn + i];
      const double wanted = sum > 0 ? sum : 0;
      right &= std::abs(y[column * kOut + row] - wanted) < 1e-4;
      right &= std::abs(fused[column * kOut + row] - wanted) < 1e-4;
    }
  }
  CUBLAS(cublasDestroy(handle));
  return judged("cublas_layer", right);
}
