// What launches with numerics have found: events, from the birth of an infinity or a NaN on, and
// the memory in which such values lie.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "numerics/shadow.hpp"

namespace workbench::ptx::numerics {

// `nan`, `infinity`: born of operands that are none (a NaN also of infinities). `through`: an
// instruction passed it on. `store`, `load`: through memory; a load without a parent read what no
// kernel of this log had written.
enum class Event : u8 { nan, infinity, through, store, load };

struct Happening {
  Event event = Event::nan;
  u32 launch = 0;
  s32 pc = -1;
  u32 parent = 0;  // the event that its operand comes from; 0: none is known
  s64 block = 0;
  s32 thread = 0;
  u8 operands = 0;  // number of them
  f64 operand[4] = {};
  f64 result = 0;
  u64 address = 0;  // of loads and stores of global memory
  bool shared = false;
  bool reached = false;  // global memory
  u64 count = 0;         // lanes
};

// The events of values in memory, by the address in this process. An entry counts as long as memory
// holds the bits that it was made for.
class Origins {
 public:
  u32 find(const u8* at, u16 bits) const;
  void put(const u8* at, u16 bits, u32 event);
  bool empty() const { return pages_.empty(); }
  void clear() { pages_.clear(); }

 private:
  static constexpr u32 kPage = 4096;
  struct Page {
    u32 event[kPage / kUnit] = {};
    u16 bits[kPage / kUnit] = {};
  };
  std::unordered_map<u64, std::unique_ptr<Page>> pages_;
};

// What conversions to a narrow format did to numbers.
struct Narrowed {
  u64 numbers = 0;
  u64 overflowed = 0;  // a number became infinity or NaN
  u64 saturated = 0;   // a number beyond the format's largest, or an infinity, became the largest
  u64 flushed = 0;     // a number other than 0 became 0
  u64 nans = 0;        // a NaN became a number
  f64 largest = 0;     // magnitude of the numbers
};

// Of one instruction, in lanes.
struct Tallies {
  u64 nans = 0, infinities = 0, passed = 0;
  u32 first_nan = 0, first_infinity = 0, first_passed = 0;  // events
  Narrowed narrowed;

  // Counts the event of a NaN or an infinity, which was born here or came `through` an operand. An
  // infinity that came through one is not counted.
  void count(u32 event, bool is_nan, bool through) {
    if (through && !is_nan) return;
    (through ? passed : is_nan ? nans : infinities) += 1;
    u32& first = through ? first_passed : is_nan ? first_nan : first_infinity;
    if (!first) first = event;
  }
};

// The events of the values in a warp's registers, by units of the register file.
struct RegisterOrigins {
  s64 block = -1;
  std::vector<u32> event;
  std::vector<u16> bits;
};

class Log {
 public:
  // Held during a launch.
  std::mutex mutex;

  // Whether launches follow errors, too.
  bool follows_errors = false;

  // Begins a launch of a kernel with so many instructions.
  void begin(std::size_t instructions, std::size_t register_bytes);
  u32 launch() const { return launch_; }
  const std::vector<Happening>& events() const { return events_; }
  const std::vector<Tallies>& tallies() const { return tallies_; }
  Tallies& tallies(s32 pc) { return tallies_[static_cast<std::size_t>(pc)]; }

  // The registers' events of a warp; null if none of its values has one.
  RegisterOrigins* registers(const Warp& warp) {
    if (registers_.empty()) return nullptr;
    if (warp.registers == last_ && last_origins_->block == warp.block->index) return last_origins_;
    return find_registers(warp);
  }
  // The event of one unit of a register that holds, or held, these bits; 0: none.
  u32 find(const Warp& warp, u32 unit, u16 bits) {
    const RegisterOrigins* const known = registers(warp);
    return known && known->bits[unit] == bits ? known->event[unit] : 0;
  }
  void put(const Warp& warp, u32 unit, u32 event);
  static u16 bits_at(const Warp& warp, u32 unit) {
    return reinterpret_cast<const u16*>(warp.registers)[unit];
  }

  // The memory that holds an address: the block's, or global.
  Origins& memory(const Block& block, bool of_block);

  // ---- errors ----

  Errors& errors(s32 pc) { return errors_[static_cast<std::size_t>(pc)]; }
  const std::vector<Errors>& errors() const { return errors_; }
  // The number of an instruction from which errors come, and what it adds to global memory: the sum
  // of squares.
  u32 blame(s32 pc) const { return launch_ << 20 | static_cast<u32>(pc + 1); }
  f64& blamed(u32 source) { return blamed_[source]; }
  const std::unordered_map<u32, f64>& blamed() const { return blamed_; }
  RegisterShadows& shadows(const Warp& warp);
  MemoryShadows& shadows(const Block& block, bool of_block);

  // Returns the event of an instruction whose operand has the event `parent`, and counts a lane. A
  // new one is described by `describe`. Of a loop, the first round stands for all. `input`: the
  // address of a load without a parent; the first ones have events of their own.
  template <class F>
  u32 note(Event event, s32 pc, u32 parent, F describe, u64 input = 0) {
    Last& last = lasts_[static_cast<std::size_t>(pc)];
    const bool separate = input && inputs_.size() < kMostInputs;
    if (separate || !last.id || last.parent != parent || last.event != event)
      last = {parent, event, separate ? inputs_[input] : find_event(event, pc, parent)};
    if (!last.id) {
      if (events_.size() >= kMost) return parent;
      last.id = static_cast<u32>(events_.size());
      Happening made;
      made.event = event, made.launch = launch_, made.pc = pc, made.parent = parent;
      describe(made);
      events_.push_back(made);
      known_[key(event, pc, parent)] = last.id;
      if (separate) inputs_[input] = last.id;
    }
    events_[last.id].count += 1;
    return last.id;
  }
  // Notes that a value has been written to global memory.
  void reach(u32 event) {
    for (; event && !events_[event].reached; event = events_[event].parent)
      events_[event].reached = true;
  }

 private:
  static constexpr std::size_t kMost = 1 << 16, kMostInputs = 256;
  struct Last {
    u32 parent = 0;
    Event event = Event::nan;
    u32 id = 0;
  };
  struct OfBlock {
    s64 index = -1;
    Origins origins;
    MemoryShadows shadows;
  };
  OfBlock& of(const Block& block);
  u64 key(Event event, s32 pc, u32 parent) const {
    return u64{parent} << 40 | (u64{launch_} & 0xffff) << 24 |
           (static_cast<u64>(pc) & 0x1fffff) << 3 | static_cast<u64>(event);
  }
  u32 find_event(Event event, s32 pc, u32 parent) const;
  RegisterOrigins* find_registers(const Warp& warp);

  std::vector<Happening> events_{1};
  std::unordered_map<u64, u32> known_;
  Origins global_;
  MemoryShadows global_shadows_;
  std::unordered_map<u32, f64> blamed_;
  u32 launch_ = 0;
  // Of the current launch.
  std::vector<Tallies> tallies_;
  std::vector<Last> lasts_;
  std::unordered_map<u64, u32> inputs_;
  std::size_t register_bytes_ = 0;
  std::unordered_map<const Block*, OfBlock> blocks_;
  std::unordered_map<const u8*, RegisterOrigins> registers_;
  const u8* last_ = nullptr;
  RegisterOrigins* last_origins_ = nullptr;
  std::vector<Errors> errors_;
  std::unordered_map<const u8*, RegisterShadows> register_shadows_;
  const u8* last_shadowed_ = nullptr;
  RegisterShadows* last_shadows_ = nullptr;
};

}  // namespace workbench::ptx::numerics
