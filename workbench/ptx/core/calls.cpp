// Parameter moves, the saving of registers around recursive calls, and the functions that the
// machine itself provides.
#include <atomic>

#include "memory/access.hpp"
#include "memory/device_heap.hpp"
#include "printf.hpp"

namespace workbench::ptx {
namespace {

void copy_parameter(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.parameter.frame);
  const u64 stride = warp.block->kernel->local_bytes;
  const u64 last =
      u64{std::max(in.parameter.source, in.parameter.destination)} + in.parameter.bytes;
  PTX_FOR_EACH_LANE (lane, mask) {
    // The call that follows reports the overflow.
    if (frame[lane] + last > stride) continue;
    u8* base = warp.local + lane * stride + frame[lane];
    std::memmove(base + in.parameter.destination, base + in.parameter.source, in.parameter.bytes);
  }
}

void save(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  for (const SavedRegister& saved : warp.block->kernel->saves[static_cast<std::size_t>(in.saved)]) {
    PTX_FOR_EACH_LANE (lane, mask) {
      std::vector<u8>& stack = warp.calls.saved[lane];
      if (saved.width == 0) {
        stack.push_back(*at<u32>(registers, saved.slot) >> lane & 1);
      } else {
        const u8* from = registers + saved.slot + lane * saved.width;
        stack.insert(stack.end(), from, from + saved.width);
      }
    }
  }
}

void restore(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const auto& all = warp.block->kernel->saves[static_cast<std::size_t>(in.saved)];
  for (auto saved = all.rbegin(); saved != all.rend(); ++saved) {
    PTX_FOR_EACH_LANE (lane, mask) {
      std::vector<u8>& stack = warp.calls.saved[lane];
      if (saved->width == 0) {
        set_predicate(registers, saved->slot, 1u << lane, stack.back() ? ~0u : 0u);
        stack.pop_back();
      } else {
        std::memcpy(registers + saved->slot + lane * saved->width,
                    stack.data() + stack.size() - saved->width, saved->width);
        stack.erase(stack.end() - saved->width, stack.end());
      }
    }
  }
}

template <class T>
T parameter(Warp& warp, const u64* frame, u32 lane, u32 offset) {
  T value;
  std::memcpy(&value,
              warp.local + lane * u64{warp.block->kernel->local_bytes} + frame[lane] + offset,
              sizeof value);
  return value;
}

template <class T>
void put_result(Warp& warp, const u64* frame, u32 lane, u32 offset, T value) {
  if (offset == kNoSlot) return;
  std::memcpy(warp.local + lane * u64{warp.block->kernel->local_bytes} + frame[lane] + offset,
              &value, sizeof value);
}

// vprintf(format, arguments).
void print(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.system.frame);
  PTX_FOR_EACH_LANE (lane, mask) {
    const MemoryView memory{warp, in, lane};
    const u64 format = parameter<u64>(warp, frame, lane, in.system.argument[0]),
              arguments = parameter<u64>(warp, frame, lane, in.system.argument[1]);
    int count = 0;
    const std::string text = format_text(memory, format, arguments, count);
    warp.block->print(text);
    put_result(warp, frame, lane, in.system.result, count);
  }
}

// __assertfail(expression, file, line, function).
void assert_fail(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.system.frame);
  const u32 lane = static_cast<u32>(first_lane(mask));
  const MemoryView memory{warp, in, lane};
  const auto& [expression, file, line, function, character] = in.system.argument;
  const auto text = [&](u32 argument) {
    return memory.text(parameter<u64>(warp, frame, lane, argument));
  };
  Finding finding{.problem = Problem::assertion,
                  .pc = warp.block->pc_of(in),
                  .block = warp.block->index,
                  .thread = warp.thread(lane)};
  finding.text = "`" + text(expression) + "` in " + text(function) + ", " + text(file) + ":" +
                 std::to_string(parameter<u32>(warp, frame, lane, line));
  finding.count = static_cast<u64>(count_lanes(mask));
  if (!warp.block->launch->checks) throw Stop{finding};
  warp.block->findings->add(finding);
}

// malloc(bytes).
void allocate_block(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.system.frame);
  const Launch& launch = *warp.block->launch;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 bytes = parameter<u64>(warp, frame, lane, in.system.argument[0]);
    const DeviceHeap::Origin origin{launch.number_in_heap, warp.block->pc_of(in)};
    put_result(warp, frame, lane, in.system.result, launch.heap->take(bytes, origin));
  }
}

// free(address).
void free_block(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.system.frame);
  DeviceHeap& heap = *warp.block->launch->heap;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 address = parameter<u64>(warp, frame, lane, in.system.argument[0]);
    if (!address || heap.give_back(address)) continue;
    const bool inside = address - heap.address() < heap.size();
    warp.block->problem(Problem::heap_misuse, in, warp.thread(lane), address, 0,
                        inside ? heap.describe(address) : "no address of the device heap");
  }
}

// cudaGraphSetConditional(handle, value). The driver's handle of a condition is the address of the
// condition's value.
void set_conditional(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.system.frame);
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 handle = parameter<u64>(warp, frame, lane, in.system.argument[0]);
    const u32 value = parameter<u32>(warp, frame, lane, in.system.argument[1]);
    const Buffer* const buffer = warp.block->find(handle, sizeof value);
    if (buffer)
      std::atomic_ref<u32>(*reinterpret_cast<u32*>(buffer->host + (handle - buffer->address)))
          .store(value, std::memory_order_relaxed);
    else
      warp.block->problem(Problem::out_of_bounds, in, warp.thread(lane), handle, sizeof value,
                          "no handle of a conditional node");
  }
}

}  // namespace

void add_calls(Table& table) {
  const auto add = [&](const char* name, Handler run, Kind kind = Kind::plain,
                       Class group = Class::other) {
    table.push_back({name, run, kind, group, "", ""});
  };
  add("call", nullptr, Kind::call, Class::control);
  add("ret", nullptr, Kind::ret, Class::control);
  add("param.copy", &copy_parameter);
  add("registers.save", &save);
  add("registers.restore", &restore);
  add("call.vprintf", &print);
  add("call.malloc", &allocate_block);
  add("call.free", &free_block);
  add("call.set_conditional", &set_conditional);
  add("call.assertfail", &assert_fail, Kind::trap, Class::control);
}

}  // namespace workbench::ptx
