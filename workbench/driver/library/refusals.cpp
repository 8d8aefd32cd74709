// Refused launches. A program that ignores the error goes on with the old content of its memory, so
// each refused launch is reported to workbench.driver, with the calls that led to it.
#include <execinfo.h>

#include <array>

#include "driver.hpp"

CU_API cuGetErrorName(CUresult code, const char** out);

namespace workbench::driver {
namespace {

constexpr int kMostFrames = 32;

// Whether the error is about the launch itself. After a kernel's fault every call is refused. When
// the interpreter ends, nothing can be reported.
bool is_about_the_launch(CUresult code) {
  switch (code) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED: return false;
    default: return true;
  }
}

u64 tell(const char* kernel, const CUlaunchConfig& config, CUresult code, const char* error,
         const char* why, bool status_is_kept) {
  if (in_forked_child()) return 0;
  std::array<void*, kMostFrames> called{};
  const int count = backtrace(called.data(), kMostFrames);
  std::array<u64, kMostFrames> frames{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    frames[i] = reinterpret_cast<u64>(called[i]);
  HookRefusal refusal{kernel,
                      {config.gridDimX, config.gridDimY, config.gridDimZ},
                      {config.blockDimX, config.blockDimY, config.blockDimZ},
                      config.sharedMemBytes,
                      static_cast<u32>(code),
                      error,
                      why,
                      frames.data(),
                      static_cast<u32>(count),
                      status_is_kept,
                      0};
  entry(Needs::nothing, [&](Call& call) { ask(call, hooks().refused, &refusal); });
  return refusal.number;
}

// The text of the thread's latest error. It is saved because the report must not replace it.
std::string latest() {
  const ThreadState* thread = thread_state();
  return thread ? thread->latest : std::string();
}

std::string name_of(CUfunction handle) {
  return answer_or(std::string(), [&] {
    const auto found = state().functions.find(reinterpret_cast<u64>(handle));
    return found == state().functions.end() ? std::string() : found->second->name;
  });
}

}  // namespace

CUresult told_of_refusal(CUfunction function, const CUlaunchConfig& config,
                         CUresult result) noexcept {
  if (!is_about_the_launch(result)) return result;
  ThreadState* const thread = thread_state();
  if (!thread || thread->runtime_tells_of_refusals) return result;
  const char* error = "";
  try {
    cuGetErrorName(result, &error);
    tell(name_of(function).c_str(), config, result, error, latest().c_str(), false);
  } catch (const std::bad_alloc&) {
    // Without memory the report lacks this launch.
  }
  return result;
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Beyond cuda.h, for the runtime: sets whether the runtime itself reports this thread's refused
// launches.
extern "C" __attribute__((visibility("default"))) void workbench_driver_refusals_by_runtime(
    int by_runtime) {
  if (ThreadState* const thread = thread_state())
    thread->runtime_tells_of_refusals = by_runtime != 0;
}

// Beyond cuda.h, for the runtime: reports a refused launch whose error the program finds by
// cudaGetLastError. Returns its number, or 0.
extern "C" __attribute__((visibility("default"))) u64
workbench_driver_refused_launch(const char* kernel, const CUlaunchConfig* config, CUresult code,
                                const char* error, const char* why) {
  return is_about_the_launch(code) ? tell(kernel, *config, code, error, why, true) : 0;
}

// Beyond cuda.h, for the runtime: the program has read the error of a refused launch.
extern "C" __attribute__((visibility("default"))) void workbench_driver_fetched(u64 number) {
  try {
    std::unique_lock lock(state().mutex);
    const Hooks& to = hooks();
    lock.unlock();
    to.fetched(number);
  } catch (const Refused&) {
    // The interpreter ends, and its report with it.
  }
}
