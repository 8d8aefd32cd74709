// A stream's work captured once as a graph, which then runs many times; its kernel given other parameters.
#include "check.h"

__global__ void add_to(int* value, int what) { *value += what; }

int main() {
  int *device, result = 0, what = 5;
  CHECK(cudaMalloc(&device, sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemsetAsync(device, 0, sizeof(int), stream));
  for (int i = 1; i <= 4; ++i) add_to<<<1, 1, 0, stream>>>(device, i);
  CHECK(cudaMemcpyAsync(&result, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph));
  bool right = result == 0;
  std::size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  right &= count == 6 && result == 10;

  cudaGraph_t built;
  cudaGraphNode_t kernel, copy;
  void* arguments[] = {&device, &what};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(add_to), params.gridDim = 1, params.blockDim = 1, params.kernelParams = arguments;
  CHECK(cudaGraphCreate(&built, 0));
  CHECK(cudaGraphAddKernelNode(&kernel, built, nullptr, 0, &params));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, built, &kernel, 1, &result, device, sizeof(int), cudaMemcpyDeviceToHost));
  cudaGraphExec_t second;
  CHECK(cudaGraphInstantiate(&second, built));
  what = 100;
  CHECK(cudaGraphExecKernelNodeSetParams(second, kernel, &params));
  CHECK(cudaGraphLaunch(second, stream));
  CHECK(cudaStreamSynchronize(stream));
  right &= result == 110;

  cudaGraph_t clone;
  cudaGraphNode_t found, from, to;
  CHECK(cudaGraphClone(&clone, built));
  CHECK(cudaGraphNodeFindInClone(&found, copy, clone));
  count = 1;
  CHECK(cudaGraphGetEdges(clone, &from, &to, nullptr, &count));
  right &= count == 1 && to == found && found != copy;
  CHECK(cudaGraphDestroyNode(found));  // of the clone alone
  CHECK(cudaGraphInstantiate(&executable, clone));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  right &= result == 110;
  CHECK(cudaGraphLaunch(second, stream));
  CHECK(cudaStreamSynchronize(stream));
  right &= result == 215;
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  return judged("graph", right);
}
