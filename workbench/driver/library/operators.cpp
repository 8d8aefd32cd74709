// torch's operators, which run on the host: they advance a stream and mark memory as launches do.
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

// Reports an operator that has run and written ranges of memory. Its time is that of a GPU to move
// `bytes`.
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

// Marks memory as written, without advancing a clock.
OPERATOR_API workbench_driver_written(const Range* written, u64 count) {
  entry([&](Call&) { mark(written, count); });
}

// Advances the stream's clock by some seconds.
OPERATOR_API workbench_driver_sleep(CUstream stream, double seconds) {
  entry([&](Call& call) {
    advance(*call.context(), stream, state().device.operation_seconds + seconds);
  });
}
