// Moving parameters, saving registers around recursive calls, and the functions that the machine
// itself provides.
#include <atomic>

#include "access.hpp"
#include "device_heap.hpp"
#include "printf.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kFrameRegister = 0;  // slot number of the frame register in the instructions below

// Slots: 0 frame register, 1 from and 2 to (offsets from the frame); imm: bytes.
void copy_parameter(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  const u64 stride = warp.block->kernel->local_bytes;
  const u64 last = std::max(in.slot[1], in.slot[2]) + static_cast<u64>(in.imm);
  PTX_FOR_EACH_LANE (lane, mask) {
    if (frame[lane] + last > stride) continue;  // the call that follows reports it
    u8* base = warp.local + lane * stride + frame[lane];
    std::memmove(base + in.slot[2], base + in.slot[1], static_cast<std::size_t>(in.imm));
  }
}

void save(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  for (const SavedRegister& saved : warp.block->kernel->saves[static_cast<std::size_t>(in.imm)]) {
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
  const auto& all = warp.block->kernel->saves[static_cast<std::size_t>(in.imm)];
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

// Slots: 0 frame register, 1 format, 2 arguments, 3 result (offsets of parameters, or kNoSlot).
void print(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  const u64 stride = warp.block->kernel->local_bytes;
  PTX_FOR_EACH_LANE (lane, mask) {
    const MemoryView memory{warp, in, lane};
    const u64 format = parameter<u64>(warp, frame, lane, in.slot[1]),
              arguments = parameter<u64>(warp, frame, lane, in.slot[2]);
    int count = 0;
    const std::string text = format_text(memory, format, arguments, count);
    warp.block->print(text);
    if (in.slot[3] != kNoSlot)
      std::memcpy(warp.local + lane * stride + frame[lane] + in.slot[3], &count, sizeof count);
  }
}

// Slots: 0 frame register, 1 expression, 2 file, 3 line, 4 function (offsets of parameters).
void assert_fail(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  const u32 lane = static_cast<u32>(first_lane(mask));
  const MemoryView memory{warp, in, lane};
  const auto text = [&](int slot) {
    return memory.text(parameter<u64>(warp, frame, lane, in.slot[slot]));
  };
  Finding finding{.problem = Problem::assertion,
                  .pc = warp.block->pc_of(in),
                  .block = warp.block->index,
                  .thread = warp.thread(lane)};
  finding.text = "`" + text(1) + "` in " + text(4) + ", " + text(2) + ":" +
                 std::to_string(parameter<u32>(warp, frame, lane, in.slot[3]));
  finding.count = static_cast<u64>(count_lanes(mask));
  if (!warp.block->launch->checks) throw Stop{finding};
  warp.block->findings->add(finding);
}

template <class T>
void put_result(Warp& warp, const u64* frame, u32 lane, u32 offset, T value) {
  if (offset == kNoSlot) return;
  std::memcpy(warp.local + lane * u64{warp.block->kernel->local_bytes} + frame[lane] + offset,
              &value, sizeof value);
}

// Slots: 0 frame register, 1 bytes, 2 result (offsets of parameters, or kNoSlot).
void allocate_block(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  const Launch& launch = *warp.block->launch;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 bytes = parameter<u64>(warp, frame, lane, in.slot[1]);
    const DeviceHeap::Origin origin{launch.number_in_heap, warp.block->pc_of(in)};
    put_result(warp, frame, lane, in.slot[2], launch.heap->take(bytes, origin));
  }
}

// Slots: 0 frame register, 1 address (offset of a parameter).
void free_block(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  DeviceHeap& heap = *warp.block->launch->heap;
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 address = parameter<u64>(warp, frame, lane, in.slot[1]);
    if (!address || heap.give_back(address)) continue;
    const bool inside = address - heap.address() < heap.size();
    warp.block->problem(Problem::heap_misuse, in, warp.thread(lane), address, 0,
                        inside ? heap.describe(address) : "no address of the device heap");
  }
}

// Slots: 0 frame register, 1 handle, 2 value (offsets of parameters). The driver's handle of a
// condition is the address of its number.
void set_conditional(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* frame = at<const u64>(registers, in.slot[kFrameRegister]);
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 handle = parameter<u64>(warp, frame, lane, in.slot[1]);
    const u32 value = parameter<u32>(warp, frame, lane, in.slot[2]);
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
  // Slots: 0 frame register, 1 frame of the caller in bytes, 2 of the callee with all that it calls
  // at least.
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
