// Moving parameters, saving registers around recursive calls, and the functions that the machine
// itself provides.
#include "access.hpp"
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
  add("call.assertfail", &assert_fail, Kind::trap, Class::control);
}

}  // namespace workbench::ptx
