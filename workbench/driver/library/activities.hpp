// Kernels as streams end them, for a profiler: our libcupti.so.13 makes its records of them.
#pragma once
#include "abi.hpp"

// A kernel of a launch, or one of torch's operators or a library's call, which run on the host.
struct Activity {
  const char* name;
  u32 device, context;
  u64 stream;      // 0: the default stream
  double seconds;  // predicted
  u32 grid[3], block[3];
  u32 static_shared, dynamic_shared, registers;  // 0 where nobody knows
};

// Runs with the driver's lock held, on the thread that enqueued the kernel.
using ActivityFollower = void (*)(const Activity*);

// Has `follower` told of each kernel from here on, and times predicted; null ends that.
extern "C" void workbench_driver_follow_activities(ActivityFollower follower);
