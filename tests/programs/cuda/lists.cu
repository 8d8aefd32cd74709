// Lists that one kernel makes by new and another deletes; a loop of a graph that a kernel ends.
#include "check.h"

struct Node {
  int value;
  Node* next;
  __device__ Node(int given, Node* after) : value(given), next(after) {}
};
__device__ Node* lists[64];

__global__ void build(int count) {
  Node* head = nullptr;
  for (int i = 0; i < count; ++i) head = new Node(i, head);
  lists[threadIdx.x] = head;
}

__global__ void take_apart(int* sums) {
  int sum = 0;
  for (Node* at = lists[threadIdx.x]; at;) {
    sum += at->value;
    Node* next = at->next;
    delete at;
    at = next;
  }
  sums[threadIdx.x] = sum;
}

__global__ void count_down(cudaGraphConditionalHandle again, int* left) {
  *left -= 1;
  cudaGraphSetConditional(again, *left > 0);
}

int main() {
  int *sums, *left, host[64], rounds = 5;
  CHECK(cudaMalloc(&sums, sizeof host));
  CHECK(cudaMalloc(&left, sizeof(int)));
  build<<<1, 64>>>(10);
  take_apart<<<1, 64>>>(sums);
  CHECK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
  bool right = true;
  for (int sum : host) right &= sum == 45;

  CHECK(cudaMemcpy(left, &rounds, sizeof(int), cudaMemcpyHostToDevice));
  cudaGraph_t graph;
  cudaGraphNode_t node;
  cudaGraphConditionalHandle again;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop = {cudaGraphNodeTypeConditional};
  loop.conditional.handle = again;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
  void* arguments[] = {&again, &left};
  cudaGraphNodeParams kernel = {cudaGraphNodeTypeKernel};
  kernel.kernel.func = reinterpret_cast<void*>(count_down);
  kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
  kernel.kernel.kernelParams = arguments;
  CHECK(cudaGraphAddNode(&node, loop.conditional.phGraph_out[0], nullptr, nullptr, 0, &kernel));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, cudaStreamPerThread));
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(cudaMemcpy(&rounds, left, sizeof(int), cudaMemcpyDeviceToHost));
  return judged("lists", right && rounds == 0);
}
