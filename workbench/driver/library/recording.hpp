// The log of what a process does to the memory of its device: from the log alone another process
// repeats it.
//
// An entry is `LogEntry`, its numbers (u64 each), and its bytes. All addresses are those of the
// device. workbench.driver.records.replaying reads the log.
#pragma once
#include "driver.hpp"

namespace workbench::driver {

enum class Logged : u32 {
  allocated = 'A',  // address, bytes
  freed = 'F',      // address
  reserved = 'R',   // address: for a module's variables, or a heap
  block = 'B',      // address, bytes, 1 if a caching allocator hands it out, 0 if it takes it back
  module = 'M',     // handle; its PTX
  launch = 'L',     // LoggedLaunch; the kernel's name, NUL, and its parameters in a GPU's layout
  written = 'W',    // address; the host's bytes
  copied = 'D',     // target, source, bytes
  read = 'G',       // address, bytes: by the host
  filled = 'S',     // address, bytes from row to row, value, bytes of an element, elements, rows
  operation = 'O',  // bytes of its JSON; the JSON, then bytes of the host's tensors
  passed = 'P',     // JSON: the tensors that the next launch has as arguments
  names = 'N',      // JSON: a kernel's name, and those of its parameters
  beyond = 'X',     // the name of what a log cannot have
};

struct LogEntry {
  u32 kind, numbers;
  u64 bytes;
};

// Module, grid and block along x, y, z, dynamic shared memory, cluster, and flags.
enum LaunchFlag : u64 { kCooperative = 1, kProgrammatic = 2 };

bool is_recording() noexcept;
// Add an entry, if the process is recorded. The caller holds the lock.
void log(Logged kind, std::initializer_list<u64> numbers, const void* bytes = nullptr,
         u64 size = 0);
void log_launch(const KernelNode& node);

}  // namespace workbench::driver
