// Launches that are refused. A program that does not ask for the error runs on with what its memory
// held before, so that each is told to workbench.driver, with the calls that led to it.
#include <execinfo.h>

#include <array>

#include "driver.hpp"

CU_API cuGetErrorName(CUresult code, const char** out);

namespace workbench::driver {
namespace {

constexpr int kMostFrames = 32;

// After a kernel's fault every call is refused, and nothing of it is about the launch. An
// interpreter that ends hears of nothing.
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

// The text of the thread's latest error; telling of it must not replace that.
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
    // No memory: the report lacks it.
  }
  return result;
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Beyond cuda.h, for the runtime: whether it tells of this thread's refused launches itself.
extern "C" __attribute__((visibility("default"))) void workbench_driver_refusals_by_runtime(
    int by_runtime) {
  if (ThreadState* const thread = thread_state())
    thread->runtime_tells_of_refusals = by_runtime != 0;
}

// Likewise: tells of a refused launch whose error the program finds by cudaGetLastError. Returns
// its number, or 0.
extern "C" __attribute__((visibility("default"))) u64
workbench_driver_refused_launch(const char* kernel, const CUlaunchConfig* config, CUresult code,
                                const char* error, const char* why) {
  return is_about_the_launch(code) ? tell(kernel, *config, code, error, why, true) : 0;
}

// Likewise: the program has asked for the error of a refused launch.
extern "C" __attribute__((visibility("default"))) void workbench_driver_fetched(u64 number) {
  try {
    std::unique_lock lock(state().mutex);
    const Hooks& to = hooks();
    lock.unlock();
    to.fetched(number);
  } catch (const Refused&) {
    // The interpreter ends, and with it the report.
  }
}
