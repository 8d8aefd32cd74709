// Host code that another linker than nvcc's links: thread-local variables, a stream that C++ lets a
// program copy into itself, and one launch. Its argument says how it runs, and how it ends.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>
extern "C" {
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, std::size_t, int);
int cudaDeviceSynchronize();
const char* cudaGetErrorName(int);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
}
thread_local int mine = 7;
const char* ptx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 values, .param .u32 count) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  .reg .pred %p;
  ld.param.u64 %rd1, [values];
  ld.param.u32 %r2, [count];
  mov.u32 %r1, %tid.x;
  setp.ge.u32 %p, %r1, %r2;
  @%p ret;
  mad.wide.u32 %rd2, %r1, 4, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

// Fills 32 numbers on the device, or writes past them; 0 where they come back.
int run(unsigned count) {
  void *memory, *module, *function;
  int host[32];
  if (int e = cudaMalloc(&memory, sizeof host)) return e;
  if (int e = cuModuleLoadData(&module, ptx)) return e;
  cuModuleGetFunction(&function, module, "fill");
  void* args[] = {&memory, &count};
  cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, args, nullptr);
  if (int e = cudaDeviceSynchronize()) return e;
  cudaMemcpy(host, memory, sizeof host, 2);
  return host[31] == 31 ? cudaFree(memory) : -1;
}
int in_a_fork() {
  int status = 0;
  if (fork() == 0) _exit(run(32));
  wait(&status);
  return WEXITSTATUS(status);
}

int main(int, char** words) {
  std::ios::sync_with_stdio(false);
  const std::string what = words[1] ? words[1] : "";
  std::cout << "mine " << mine << std::endl;
  int status = 0;
  if (what == "exec") execl(words[0], words[0], nullptr);
  if (what == "fork first") return in_a_fork() + run(32);
  if (what == "fork late") return run(32) + in_a_fork();
  if (what == "thread")
    std::thread([&] { status = run(32); }).join();
  else
    status = run(what == "past" ? 33 : 32);
  std::cout << cudaGetErrorName(status) << std::endl;
  if (what == "abort") std::abort();
  if (what == "_exit") _exit(5);
  if (what == "touch") *reinterpret_cast<volatile int*>(0x20000000000) = 1;
  if (what == "handler") {
    std::signal(SIGSEGV, [](int) { _exit(6); });
    std::raise(SIGSEGV);
  }
  while (what == "loop") usleep(1000);
  while (what == "more") std::cout << "more" << std::endl;
  return status;
}
