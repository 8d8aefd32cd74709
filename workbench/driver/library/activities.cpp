#include "activities.hpp"

#include "driver.hpp"

namespace workbench::driver {

bool is_timed(const Context& context) { return context.timed || state().follower; }

void tell_activity(const Context& context, CUstream stream, const char* name, double seconds,
                   const HookLaunch* launch, const HookFunction* facts) {
  const ActivityFollower follower = state().follower;
  if (!follower) return;
  Activity told{.name = name,
                .device = static_cast<u32>(context.device),
                .context = static_cast<u32>(context.handle),
                .stream = stream_number(context, stream),
                .seconds = seconds,
                .grid = {1, 1, 1},
                .block = {1, 1, 1},
                .static_shared = facts ? facts->static_shared : 0,
                .dynamic_shared = launch ? launch->dynamic_shared : 0,
                .registers = facts ? facts->registers : 0};
  if (launch) {
    std::copy_n(launch->grid, 3, told.grid);
    std::copy_n(launch->block, 3, told.block);
  }
  follower(&told);
}

}  // namespace workbench::driver

extern "C" __attribute__((visibility("default"))) void workbench_driver_follow_activities(
    ActivityFollower follower) {
  std::lock_guard lock(workbench::driver::state().mutex);
  workbench::driver::state().follower = follower;
}
