// nvcc: -lcublas host.cpp
// needs: cublas_v2.h
// The forward pass of a small GPT-2 over cuBLAS: products by cublasSgemm, attention by its strided batches, the rest
// in kernels. Weights are random; a plain forward pass on the host says what the logits are.
#include <cublas_v2.h>

#include <cmath>
#include <vector>

#include "../check.h"
#include "model.h"

constexpr int kThreads = 64;

__device__ float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }

__global__ void embed(const int* tokens, const float* words, const float* places, float* out) {
  const int channel = threadIdx.x, token = blockIdx.x;
  out[token * kChannels + channel] = words[tokens[token] * kChannels + channel] + places[token * kChannels + channel];
}

__global__ void normalise(const float* in, float* out) {  // a thread to a token
  const float* row = in + threadIdx.x * kChannels;
  float mean = 0, variance = 0;
  for (int i = 0; i < kChannels; ++i) mean += row[i] / kChannels;
  for (int i = 0; i < kChannels; ++i) variance += (row[i] - mean) * (row[i] - mean) / kChannels;
  for (int i = 0; i < kChannels; ++i) out[threadIdx.x * kChannels + i] = (row[i] - mean) * rsqrtf(variance + 1e-5f);
}

__global__ void add_bias(float* values, const float* bias, int columns, int n, bool activated) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float value = values[i] + bias[i % columns];
  values[i] = activated ? gelu(value) : value;
}

__global__ void softmax_causal(float* scores) {  // a thread to a row; a block to a head
  float *row = scores + (blockIdx.x * kTokens + threadIdx.x) * kTokens, most = -INFINITY, sum = 0;
  for (int i = 0; i <= threadIdx.x; ++i) most = fmaxf(most, row[i]);
  for (int i = 0; i <= threadIdx.x; ++i) sum += expf(row[i] - most);
  for (int i = 0; i < kTokens; ++i) row[i] = i <= threadIdx.x ? expf(row[i] - most) / sum : 0;
}

float* on_device(const Floats& values) {
  float* device;  // which the end of the process frees
  CHECK(cudaMalloc(&device, values.size() * sizeof(float)));
  CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
  return device;
}

void check(cublasStatus_t status, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    std::exit(std::fprintf(stderr, "%s:%d: %s\n", file, line, cublasGetStatusName(status)));
}

// out [tokens, outs] = in [tokens, ins] weights [outs, ins], plus beta times out; cuBLAS counts by columns.
void multiply(cublasHandle_t blas, const float* in, const Floats& weights, float* out, int ins, int outs,
              float beta = 0) {
  const float one = 1;
  CHECK(cublasSgemm(blas, CUBLAS_OP_T, CUBLAS_OP_N, outs, kTokens, ins, &one, on_device(weights), ins, in, ins, &beta,
                    out, outs));
}

Floats forward_on_device(const Model& model, const std::vector<int>& tokens) {
  cublasHandle_t blas;
  CHECK(cublasCreate(&blas));
  const auto biased = [](float* values, const Floats& bias, bool activated) {
    const int columns = bias.size(), n = kTokens * columns;
    add_bias<<<(n + kThreads - 1) / kThreads, kThreads>>>(values, on_device(bias), columns, n, activated);
  };
  const auto scratch = [](int n) { return on_device(Floats(n)); };
  float *x = scratch(kTokens * kChannels), *normed = scratch(kTokens * kChannels),
        *qkv = scratch(3 * kTokens * kChannels);
  float *mixed = scratch(kTokens * kChannels), *scores = scratch(kHeads * kTokens * kTokens);
  float *wide = scratch(4 * kTokens * kChannels), *logits = scratch(kTokens * kVocabulary);
  int* device_tokens;
  CHECK(cudaMalloc(&device_tokens, kTokens * sizeof(int)));
  CHECK(cudaMemcpy(device_tokens, tokens.data(), kTokens * sizeof(int), cudaMemcpyHostToDevice));
  const float scale = 1 / std::sqrt(float(kHead)), one = 1, zero = 0;
  const int t = kTokens, c = kChannels;
  embed<<<kTokens, kChannels>>>(device_tokens, on_device(model.words), on_device(model.places), x);
  for (const Layer& layer : model.layers) {
    normalise<<<1, kTokens>>>(x, normed);
    multiply(blas, normed, layer.qkv, qkv, c, 3 * c);
    biased(qkv, layer.qkv_bias, false);
    CHECK(cublasSgemmStridedBatched(blas, CUBLAS_OP_T, CUBLAS_OP_N, t, t, kHead, &scale, qkv + c, 3 * c, kHead, qkv,
                                    3 * c, kHead, &zero, scores, t, t * t, kHeads));
    softmax_causal<<<kHeads, kTokens>>>(scores);
    CHECK(cublasSgemmStridedBatched(blas, CUBLAS_OP_N, CUBLAS_OP_N, kHead, t, t, &one, qkv + 2 * c, 3 * c, kHead,
                                    scores, t, t * t, &zero, mixed, c, kHead, kHeads));
    multiply(blas, mixed, layer.projection, x, c, c, 1);
    biased(x, layer.projection_bias, false);
    normalise<<<1, kTokens>>>(x, normed);
    multiply(blas, normed, layer.up, wide, c, 4 * c);
    biased(wide, layer.up_bias, true);
    multiply(blas, wide, layer.down, x, 4 * c, c, 1);
    biased(x, layer.down_bias, false);
  }
  normalise<<<1, kTokens>>>(x, normed);
  multiply(blas, normed, model.words, logits, c, kVocabulary);
  CHECK(cudaGetLastError());
  Floats found(kTokens * kVocabulary);
  CHECK(cudaMemcpy(found.data(), logits, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cublasDestroy(blas));
  return found;
}

int main() {
  const Model model = random_model();
  std::vector<int> tokens(kTokens);
  for (int i = 0; i < kTokens; ++i) tokens[i] = i * 17 % kVocabulary;
  const Floats found = forward_on_device(model, tokens), expected = forward_on_host(model, tokens);
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::fmax(worst, std::abs(found[i] - expected[i]));
    largest = std::fmax(largest, std::abs(expected[i]));
  }
  std::printf("logits up to %.2f, %.1e apart\n", largest, worst);
  return judged("gpt2", worst < 1e-3f && largest > 1);
}
