#include "calls.hpp"

extern "C" {
int cudaFree(void* pointer);
int cudaStreamIsCapturing(CUstream stream, unsigned* status);
const char* workbench_driver_latest_error();
void workbench_runtime_refused(const char* text);
}

namespace workbench::host {
namespace {

// The driver has the reason.
struct Ended {};

void run(void* data, HostFrame* frame) {
  try {
    Frame arguments(frame);
    (*static_cast<Body*>(data))(arguments);
  } catch (const Ended&) {
  } catch (const DriverFailed& failed) {
    workbench_driver_host_fail(frame, failed.code, failed.why.c_str());
  } catch (const std::bad_alloc&) {
    workbench_driver_host_fail(frame, CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  } catch (const std::exception& error) {
    workbench_driver_host_fail(frame, CUDA_ERROR_UNKNOWN, error.what());
  }
}

}  // namespace

void* Frame::range(const std::string& argument, const void* address, std::size_t element, i64 rows,
                   i64 columns, i64 stride, Access access) {
  if (rows <= 0 || columns <= 0) return nullptr;
  const HostRange wanted{argument.c_str(),
                         reinterpret_cast<u64>(address),
                         static_cast<u64>(rows) * element,
                         static_cast<u64>(columns),
                         static_cast<u64>(stride) * element,
                         access != Access::writes,
                         access != Access::reads};
  void* here = workbench_driver_host_range(frame_, &wanted);
  if (!here) throw Ended{};
  return here;
}

void enqueue(CUstream stream, const char* name, const std::string& shape, Body body) {
  auto* kept = new Body(std::move(body));
  const CUresult result = workbench_driver_host_call(
      stream, name, shape.c_str(), run, kept, [](void* one) { delete static_cast<Body*>(one); });
  if (result) throw DriverFailed{result, workbench_driver_latest_error()};
}

void at_least(i64 value, i64 least, const char* argument, int status) {
  if (value >= least) return;
  throw Failed{status, std::string(argument) + " is " + std::to_string(value) + ", allowed is " +
                           std::to_string(least) + " or more"};
}

std::string sizes(std::initializer_list<std::pair<const char*, i64>> given) {
  std::string text;
  for (const auto& [name, value] : given)
    text += (text.empty() ? "" : ", ") + std::string(name) + "=" + std::to_string(value);
  return text;
}

int failed(const char* name, int status, const std::string& why, bool refused) noexcept {
  try {
    const std::string text = std::string(name) + ": " + why;
    if (refused) workbench_runtime_refused(text.c_str());
    workbench_driver_remember(refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE,
                              text.c_str());
  } catch (const std::bad_alloc&) {
    // Without memory for the message only the status is returned.
  }
  return status;
}

int need_context() { return cudaFree(nullptr); }

bool on_device_alone(const void* address) {
  return workbench_driver_on_device_alone(reinterpret_cast<u64>(address)) != 0;
}

bool is_capturing(CUstream stream) {
  unsigned status = 0;
  return cudaStreamIsCapturing(stream, &status) == 0 && status != 0;
}

}  // namespace workbench::host
