#include "waits.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

namespace workbench::nccl {

struct Waiter {
  std::atomic<u64> owner;      // a thread's number; 0: free
  std::atomic<u64> started;    // its process
  std::atomic<u64> version;    // odd while the rest is written
  std::atomic<u64> looks;      // in vain, at what it waits for
  std::atomic<u32> count;      // of threads that it waits for; 0: it goes on
  std::atomic<u32> in_circle;  // another thread has found the deadlock: 1 while it writes the text
  std::atomic<u64> targets[kMostRanks];
  char text[kTextBytes];
  char verdict[4 * kTextBytes];
};

constexpr std::size_t kWaiters = 256;
struct WaitTable {
  Waiter waiters[kWaiters];
};

namespace {

constexpr u64 kLooks = 2;  // of each thread in a circle, before it counts as a deadlock

void put(char* room, std::size_t size, const std::string& text) {
  std::snprintf(room, size, "%s", text.c_str());
}

// Whether `from`, which waits for a thread, waits for `one`, which waits itself. A rank's calls may
// come from several threads of its process, so that another process is stuck if any of its threads
// is; within a process each counts alone.
bool waits_for(const Waiter& from, u64 target, const Waiter& one) {
  if (!one.owner || !one.count) return false;
  const int wanted = Thread::of(target).process;
  const bool within_process = wanted == Thread::of(from.owner).process;
  return within_process ? one.owner == target : Thread::of(one.owner).process == wanted;
}

}  // namespace

Thread Thread::current() { return {::getpid(), static_cast<int>(::syscall(SYS_gettid))}; }

u64 started_at(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return 0;
  if (line[name_end + 2] == 'Z' || line[name_end + 2] == 'X') return 0;
  // The 22nd field, and the third follows the name.
  std::size_t at = name_end + 1;
  for (int field = 3; field < 22; ++field) at = line.find(' ', at + 1);
  return std::strtoull(line.c_str() + at + 1, nullptr, 10) + 1;
}

void* shared_file(const std::string& path, std::size_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) ::close(file);
    throw Failed{kSystemError, path + " cannot be written: " + std::strerror(errno) +
                                   "; let TMPDIR name a folder that all ranks can write"};
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) throw Failed{kSystemError, path + ": " + std::strerror(errno)};
  return at;
}

Wait::Wait(const std::string& root, const std::vector<Thread>& for_whom, const std::string& text)
    : table_(static_cast<WaitTable*>(shared_file(root + "/waits", sizeof(WaitTable)))) {
  const Thread self = Thread::current();
  for (Waiter& one : table_->waiters) {
    u64 owner = one.owner;
    // A process that died while it waited leaves its entry.
    const bool is_free = !owner || (Thread::of(owner).process != self.process &&
                                    started_at(Thread::of(owner).process) != one.started);
    if (is_free && one.owner.compare_exchange_strong(owner, self.number())) {
      own_ = &one;
      break;
    }
  }
  if (!own_) return;  // such a wait ends by its time limit
  own_->version += own_->version % 2 ? 2 : 1;
  own_->started = started_at(self.process);
  own_->looks = 0;
  own_->in_circle = 0;
  put(own_->text, sizeof own_->text, text);
  u32 count = 0;
  for (const Thread& one : for_whom)
    if (count < kMostRanks) own_->targets[count++] = one.number();
  own_->count = count;
  ++own_->version;
}

Wait::~Wait() {
  if (own_) {
    own_->count = 0;
    own_->owner = 0;
  }
  ::munmap(table_, sizeof(WaitTable));
}

// The threads on a way from this one back to it.
std::vector<Wait::Seen> Wait::circle() const {
  std::vector<Seen> path;
  std::set<const Waiter*> visited;
  const std::function<bool(const Waiter&)> leads_back = [&](const Waiter& from) {
    if (!visited.insert(&from).second) return false;
    path.push_back({from.version, from.looks, static_cast<std::size_t>(&from - table_->waiters)});
    const u32 count = std::min<u32>(from.count, kMostRanks);
    for (u32 i = 0; i < count; ++i) {
      const u64 target = from.targets[i];
      if (waits_for(from, target, *own_)) return true;
      for (const Waiter& next : table_->waiters)
        if (waits_for(from, target, next) && leads_back(next)) return true;
    }
    path.pop_back();
    return false;
  };
  return leads_back(*own_) ? path : std::vector<Seen>{};
}

// Whether each of them has looked again since, and is in the same wait.
bool Wait::still_waits(const std::vector<Seen>& seen) const {
  return std::ranges::all_of(seen, [&](const Seen& one) {
    const Waiter& now = table_->waiters[one.slot];
    return now.version == one.version && now.count && now.looks >= one.looks + kLooks;
  });
}

std::string Wait::deadlock() {
  if (!own_) return "";
  ++own_->looks;
  if (own_->in_circle == 2) return own_->verdict;
  if (suspected_.empty()) {
    suspected_ = circle();
    return "";
  }
  const bool same = std::ranges::all_of(suspected_, [&](const Seen& one) {
    return table_->waiters[one.slot].version == one.version;
  });
  if (!same) suspected_.clear();
  if (suspected_.empty() || !still_waits(suspected_)) return "";
  std::string text = "deadlock: ";
  for (const Seen& one : suspected_) {
    if (&one != suspected_.data()) text += "; ";
    text += table_->waiters[one.slot].text;
  }
  text +=
      ". Issue collectives and messages in the same order on all ranks, and put messages in both "
      "directions into one group (batch_isend_irecv, ncclGroupStart)";
  for (const Seen& one : suspected_) {
    Waiter& member = table_->waiters[one.slot];
    u32 none = 0;
    if (&member == own_ || !member.in_circle.compare_exchange_strong(none, 1)) continue;
    put(member.verdict, sizeof member.verdict, text);
    member.in_circle = 2;
  }
  return text;
}

}  // namespace workbench::nccl
