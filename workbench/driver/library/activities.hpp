// Records of finished kernels for a profiler: our libcupti.so.13 turns them into CUPTI's.
#pragma once
#include "abi.hpp"

// A launched kernel, or a torch operator or library call, which run on the host.
struct Activity {
  const char* name;
  u32 device, context;
  u64 stream;      // 0: the default stream
  double seconds;  // predicted
  u32 grid[3], block[3];
  u32 static_shared, dynamic_shared, registers;  // 0 if unknown
};

// Runs with the driver's lock held, on the thread that enqueued the kernel.
using ActivityFollower = void (*)(const Activity*);

// Calls `follower` for each kernel from here on, with predicted times; null ends that.
extern "C" void workbench_driver_follow_activities(ActivityFollower follower);
