// Threads of all processes that wait for each other, in a table that they share. Those that wait in
// a circle are a deadlock.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "nccl.hpp"

namespace workbench::nccl {

constexpr int kMostRanks = 64;
constexpr std::size_t kTextBytes = 512;

// A thread of a process on this machine.
struct Thread {
  int process = 0, thread = 0;
  u64 number() const { return static_cast<u64>(process) << 32 | static_cast<u32>(thread); }
  static Thread of(u64 number) {
    return {static_cast<int>(number >> 32), static_cast<int>(number & 0xffff'ffff)};
  }
  static Thread current();
};

// The time at which a process started, in clock ticks; 0 if it has ended.
u64 started_at(int process);

struct Waiter;
struct WaitTable;

// A memory mapping of a file that processes share; made if it is not there. It is never unmapped.
void* shared_file(const std::string& path, std::size_t bytes);

// One wait of this thread, for threads that have to do their part first.
class Wait {
 public:
  // `text` says what waits for whom.
  Wait(const std::string& root, const std::vector<Thread>& for_whom, const std::string& text);
  ~Wait();
  Wait(const Wait&) = delete;

  // Call it after each look at what the thread waits for. Returns a description of the circle, once
  // all in it have looked again in vain, or "".
  std::string deadlock();

 private:
  struct Seen {
    u64 version, looks;
    std::size_t slot;
  };
  std::vector<Seen> circle() const;
  bool still_waits(const std::vector<Seen>& seen) const;

  WaitTable* table_;
  Waiter* own_ = nullptr;
  std::vector<Seen> suspected_ = {};
};

}  // namespace workbench::nccl
