// Managed memory in a struct of the program's own, touched by host and device in turn.
#include <new>

#include "check.h"

struct Managed {
  static void* operator new(std::size_t bytes) {
    void* pointer;
    CHECK(cudaMallocManaged(&pointer, bytes));
    return pointer;
  }
  static void operator delete(void* pointer) { CHECK(cudaFree(pointer)); }
};

struct List : Managed {
  int value;
  List* next;
};

__global__ void double_all(List* list) {
  for (; list; list = list->next) list->value *= 2;
}

int main() {
  List* list = nullptr;
  for (int i = 0; i < 10; ++i) {
    List* first = new List;
    first->value = i, first->next = list;
    list = first;
  }
  cudaMemLocation here{cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPrefetchAsync(list, sizeof(List), here, 0, nullptr));
  double_all<<<1, 1>>>(list);
  CHECK(cudaDeviceSynchronize());
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, list));
  int sum = 0;
  while (list) {
    List* first = list;
    sum += first->value, list = first->next;
    delete first;
  }
  return judged("managed", sum == 90 && attributes.type == cudaMemoryTypeManaged);
}
