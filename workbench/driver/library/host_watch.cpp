// Accesses of the host to page-locked and managed memory that an operation may still use. The host
// has a mapping of its own of such memory, whose pages are protected until the host has waited for
// the operation; the driver and the kernels use another mapping. A fault is looked up by its byte:
// if no pending operation forbids the access, the page is opened, and later accesses to it pass.
//
// Out of reach: memory that the host registered, and system calls on protected pages, which fail
// with EFAULT.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "driver.hpp"

namespace workbench::driver {
namespace {

constexpr u64 kPage = 4096;
constexpr int kMostFrames = 32;
constexpr int kTries = 2000;     // for the lock, which another thread may hold
constexpr long kPause = 50'000;  // nanoseconds
constexpr u64 kWriteFault = 2;   // in the error code of a page fault

struct Watched {
  u64 begin, end;
  Deed deed;
  bool any;  // forbids reads, too
};

struct HostWatch {
  std::map<u64, std::vector<Watched>> by_allocation;
  struct sigaction before = {};
};

HostWatch& watch() {
  static auto* const one = new HostWatch;
  return *one;
}

void protect(u64 begin, u64 end, int how) {
  const u64 first = begin / kPage * kPage;
  ::mprotect(reinterpret_cast<void*>(first), (end - first + kPage - 1) / kPage * kPage, how);
}

void protect_again(const std::vector<Watched>& left) {
  for (const Watched& one : left)
    if (!one.any) protect(one.begin, one.end, PROT_READ);
  for (const Watched& one : left)
    if (one.any) protect(one.begin, one.end, PROT_NONE);
}

// Drops watched ranges; the pages of the others stay protected.
template <class Gone>
bool drop(std::vector<Watched>& all, Gone&& gone) {
  bool dropped = false;
  for (const Watched& one : all) {
    if (!gone(one)) continue;
    protect(one.begin, one.end, PROT_READ | PROT_WRITE);
    dropped = true;
  }
  if (!dropped) return false;
  std::erase_if(all, gone);
  protect_again(all);
  return true;
}

// Whether the thread may call Python: one that Python does not know could wait for the interpreter
// while the thread that has it waits for this one.
bool knows_python() {
  using ThisThread = void* (*)();
  static const auto this_thread =
      reinterpret_cast<ThisThread>(::dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  return this_thread && this_thread();
}

bool lock_patiently(std::unique_lock<std::mutex>& lock) {
  for (int i = 0; i < kTries; ++i) {
    if (lock.try_lock()) return true;
    const timespec pause{0, kPause};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

// Whether a fault is one of ours; then the access may go on.
bool handle(u64 address, bool is_write, u64 instruction) {
  std::unique_lock lock(state().mutex, std::defer_lock);
  if (!lock_patiently(lock)) {  // the driver itself writes to memory of its client
    protect(address, address + 1, PROT_READ | PROT_WRITE);
    return true;
  }
  const auto held = find_allocation(address, 1);
  if (!held || !held->of_client) return false;
  auto& all = watch().by_allocation[held->address];
  const OrderClock& known = host_clock();
  Deed found{};
  u64 begin = 0;
  u64 end = 0;
  for (const Watched& one : all) {
    const bool hits = address >= one.begin && address < one.end && (is_write || one.any);
    if (!hits || one.deed.time <= known.at(one.deed.agent)) continue;
    found = one.deed, begin = one.begin, end = one.end;
    break;
  }
  if (!found.agent) {
    protect(address, address + 1, PROT_READ | PROT_WRITE);
    return true;
  }
  if (!knows_python()) {  // a thread that helps one which will fault, too
    protect(address, address + 1, PROT_READ | PROT_WRITE);
    return true;
  }
  drop(all, [&](const Watched& one) { return one.begin < end && begin < one.end; });
  if (state().closed) return true;
  u64 frames[kMostFrames + 1] = {instruction + 1};
  void* addresses[kMostFrames];
  const int count = ::backtrace(addresses, kMostFrames);
  u32 used = 1;
  bool beyond = false;  // the frames below the signal's are those of the program
  for (int i = 0; i < count; ++i) {
    const u64 at = reinterpret_cast<u64>(addresses[i]);
    if (beyond) frames[used++] = at;
    beyond |= at == instruction;
  }
  const HookHostAccess access{.side = {.what = found.what,
                                       .writes = (found.kind & kWrites) != 0,
                                       .stream = found.stream,
                                       .pc = found.pc},
                              .address = address,
                              .offset = address - held->address,
                              .bytes = held->size,
                              .managed = held->where == Where::managed,
                              .writes = is_write,
                              .frames = frames,
                              .frame_count = used};
  Call call(lock);
  try {
    ask(call, state().hooks.host_access, &access);
  } catch (const Refused&) {
    // Its message is lost: the program's access must go on.
  }
  return true;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const bool is_write = (static_cast<u64>(registers.gregs[REG_ERR]) & kWriteFault) != 0;
  const u64 instruction = static_cast<u64>(registers.gregs[REG_RIP]);
#else
  const bool is_write = true;
  const u64 instruction = registers.pc;
#endif
  if (info->si_code == SEGV_ACCERR &&
      handle(reinterpret_cast<u64>(info->si_addr), is_write, instruction)) {
    errno = error;
    return;
  }
  // faulthandler raises the signal again, for the handler before it, which may be this one.
  static std::atomic<bool> passed_on;
  const bool was_sent = info->si_code <= 0;
  const struct sigaction& before = watch().before;
  const bool by_default =
      (was_sent && passed_on) || before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN;
  if (by_default) {
    ::signal(SIGSEGV, SIG_DFL);  // the access faults again, and ends the process
    if (was_sent) ::raise(SIGSEGV);
    return;
  }
  passed_on = true;
  if (before.sa_flags & SA_SIGINFO)
    before.sa_sigaction(signal, info, context);
  else
    before.sa_handler(signal);
  passed_on = false;
}

// Makes this the first handler of faults; others, such as faulthandler's, may have come later.
void take_faults() {
  struct sigaction now{};
  ::sigaction(SIGSEGV, nullptr, &now);
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == &on_fault) return;
  watch().before = now;
  struct sigaction own{};
  own.sa_sigaction = &on_fault;
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &own, nullptr);
}

}  // namespace

bool share_pages(u64 bytes, SharedPages& out) {
  const int file = ::memfd_create("page-locked", MFD_CLOEXEC);
  if (file < 0) return false;
  const bool sized = ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
  const auto map = [&] {
    return sized ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  };
  void* const of_client = map();
  void* const of_driver = map();
  ::close(file);
  if (of_client != MAP_FAILED && of_driver != MAP_FAILED) {
    out = {static_cast<u8*>(of_client), static_cast<u8*>(of_driver)};
    return true;
  }
  if (of_client != MAP_FAILED) ::munmap(of_client, bytes);
  if (of_driver != MAP_FAILED) ::munmap(of_driver, bytes);
  return false;
}

void unshare_pages(const SharedPages& pages, u64 bytes) {
  ::munmap(pages.of_client, bytes);
  ::munmap(pages.of_driver, bytes);
}

void watch_host(const Allocation& allocation, const AccessedRange& range, const Deed& deed) {
  if (range.kind & kStrong) return;  // the host may poll what a kernel counts
  auto& all = watch().by_allocation[allocation.address];
  const u64 end = std::min(range.end, allocation.address + allocation.size);
  const bool any = range.kind & kWrites;
  take_faults();
  for (Watched& one : all) {
    if (one.begin != range.begin || one.end != end || one.any != any) continue;
    one.deed = deed;
    return protect_again(all);
  }
  all.push_back({range.begin, end, deed, any});
  protect_again(all);
}

void unwatch_host(const OrderClock& known) {
  for (auto& [_, all] : watch().by_allocation)
    drop(all, [&](const Watched& one) { return one.deed.time <= known.at(one.deed.agent); });
  std::erase_if(watch().by_allocation, [](const auto& item) { return item.second.empty(); });
}

void unwatch_host(u64 address) {
  const auto found = watch().by_allocation.find(address);
  if (found == watch().by_allocation.end()) return;
  drop(found->second, [](const Watched&) { return true; });
  watch().by_allocation.erase(found);
}

}  // namespace workbench::driver
