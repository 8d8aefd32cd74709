// For torch's operators, which run on the host: their part of what a launch does in the driver.
#include "driver.hpp"

#define OPERATOR_API extern "C" __attribute__((visibility("default"))) void

using namespace workbench::driver;

namespace {

struct Range {
  u64 address, bytes;
};

void mark(const Range* written, u64 count) {
  if (!state().follows_writes) return;
  for (u64 i = 0; i < count; ++i) {
    const auto found = find_allocation(written[i].address, written[i].bytes);
    if (found) mark_written(*found, written[i].address - found->address, written[i].bytes);
  }
}

}  // namespace

// An operator has run, and wrote ranges of memory. Its time is the one that a GPU would take to
// move `bytes`.
OPERATOR_API workbench_driver_operator(CUstream stream, const char* name, u64 bytes,
                                       const Range* written, u64 count) {
  entry([&](Call& call) {
    mark(written, count);
    Context& context = *call.context();
    if (!is_timed(context)) return;
    const HookDevice& device = state().device;
    const double seconds =
        device.operation_seconds + static_cast<double>(bytes) / device.device_bytes_per_second;
    advance(context, stream, seconds);
    tell_activity(context, stream, name, seconds);
  });
}

// Memory was written, in no time.
OPERATOR_API workbench_driver_written(const Range* written, u64 count) {
  entry([&](Call&) { mark(written, count); });
}

// The stream does nothing for some seconds.
OPERATOR_API workbench_driver_sleep(CUstream stream, double seconds) {
  entry([&](Call& call) {
    advance(*call.context(), stream, state().device.operation_seconds + seconds);
  });
}
