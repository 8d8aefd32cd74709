// The log of a process (recording.hpp), and what a process needs that repeats one.
#include "recording.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#define RECORDING_API extern "C" __attribute__((visibility("default")))

namespace workbench::driver {
namespace {

struct Recording {
  std::atomic<bool> on = false;
  std::vector<u8> entries;
  std::deque<u64> prescribed;  // the next addresses to reserve, in a process that repeats a log
};

Recording& recording() {
  static auto* const one = new Recording;  // never destroyed: calls may come until the very end
  return *one;
}

}  // namespace

bool is_recording() noexcept { return recording().on.load(std::memory_order_relaxed); }

void log(Logged kind, std::initializer_list<u64> numbers, const void* bytes, u64 size) {
  if (!is_recording()) return;
  const LogEntry entry{static_cast<u32>(kind), static_cast<u32>(numbers.size()), size};
  auto& to = recording().entries;
  const auto add = [&](const void* from, u64 count) {
    const auto* begin = static_cast<const u8*>(from);
    to.insert(to.end(), begin, begin + count);
  };
  add(&entry, sizeof entry);
  add(numbers.begin(), numbers.size() * sizeof(u64));
  if (size) add(bytes, size);
}

void log_launch(const KernelNode& node) {
  if (!is_recording()) return;
  const HookLaunch& launch = node.launch;
  const Function& function = *node.function;
  std::vector<u8> content(function.name.begin(), function.name.end());
  content.push_back(0);
  const std::size_t begin = content.size();
  content.resize(begin + function.facts.buffer_bytes);
  for (std::size_t i = 0; i < function.offsets.size(); ++i) {
    std::memcpy(content.data() + begin + function.buffer_offsets[i],
                node.bytes.data() + function.offsets[i], function.sizes[i]);
  }
  const u64 flags =
      (launch.cooperative ? u64{kCooperative} : 0) | (launch.programmatic ? u64{kProgrammatic} : 0);
  log(Logged::launch,
      {function.module, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
       launch.block[1], launch.block[2], launch.dynamic_shared, launch.cluster[0],
       launch.cluster[1], launch.cluster[2], flags},
      content.data(), content.size());
}

u64 prescribed_address() {
  auto& next = recording().prescribed;
  if (next.empty()) return 0;
  const u64 address = next.front();
  next.pop_front();
  return address;
}

}  // namespace workbench::driver

using namespace workbench::driver;

// Begins or ends the recording; entries stay until they are taken.
RECORDING_API void workbench_driver_record(int on) { recording().on = on != 0; }

RECORDING_API int workbench_driver_records() { return is_recording(); }

// Adds an entry, for clients of the driver that know more than it does.
RECORDING_API void workbench_driver_log(u32 kind, const u64* numbers, u32 count, const void* bytes,
                                        u64 size) {
  answer_or(0, [&] {
    if (count == 0) log(Logged{kind}, {}, bytes, size);
    if (count == 1) log(Logged{kind}, {numbers[0]}, bytes, size);
    return 0;
  });
}

// Hands the entries to `put`, and forgets them. Returns what `put` returns.
RECORDING_API int workbench_driver_take_log(void* taker,
                                            int (*put)(void* taker, const void* bytes, u64 size)) {
  std::vector<u8> taken;
  answer_or(0, [&] {
    taken.swap(recording().entries);
    return 0;
  });
  return put(taker, taken.data(), taken.size());
}

// Lets the addresses of later allocations begin here.
RECORDING_API void workbench_driver_begin_addresses(u64 address) {
  answer_or(0, [&] {
    state().next_address = address;
    return 0;
  });
}

// The next address to reserve for a module's variables or a heap.
RECORDING_API void workbench_driver_prescribe(u64 address) {
  answer_or(0, [&] {
    recording().prescribed.push_back(address);
    return 0;
  });
}

// Allocates memory at an address of a log. An error has a message.
RECORDING_API CUresult workbench_driver_place(u64 address, u64 bytes) {
  return entry([&](Call& call) {
    if (overlaps(address, bytes))
      throw Refused{CUDA_ERROR_INVALID_VALUE, "the log allocates memory twice"};
    allocate(call, bytes, Where::device, 0, address);
  });
}

// The address in this process of a range of device memory; 0 if no single allocation holds it.
RECORDING_API u64 workbench_driver_range(u64 address, u64 bytes) {
  return answer_or(u64{0}, [&] {
    const auto found = find_allocation(address, bytes);
    return found ? reinterpret_cast<u64>(found->host) + (address - found->address) : 0;
  });
}

// The device address of memory at an address of this process, or 0.
RECORDING_API u64 workbench_driver_device_address(u64 host) {
  return answer_or(u64{0}, [&] {
    for (const auto& [address, allocation] : state().allocations) {
      const u64 offset = host - reinterpret_cast<u64>(allocation->host);
      if (!allocation->on_host() && offset < allocation->size) return address + offset;
    }
    return u64{0};
  });
}
