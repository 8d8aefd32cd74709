// Holds back the first thread that touches a page, until another one has changed a word of it or
// has not come for a while: what a machine under load does now and then, done each time.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace {

constexpr std::size_t kPage = 4096;
char* page;
const volatile std::int32_t* word;
std::int32_t before;
std::atomic<int> faults;
struct sigaction earlier;

void hold(int, siginfo_t* info, void*) {
  const int saved = errno;
  const char* const address = static_cast<const char*>(info->si_addr);
  if (address < page || address >= page + kPage) {  // somebody else's fault comes again, to them
    sigaction(SIGSEGV, &earlier, nullptr);
    return;
  }
  constexpr int kRounds = 200;
  const timespec millisecond{0, 1'000'000};
  const bool first = faults.fetch_add(1) == 0;
  for (int i = 0; first && i < kRounds && faults == 1; ++i) nanosleep(&millisecond, nullptr);
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
  for (int i = 0; first && i < kRounds && faults > 1 && *word == before; ++i)
    nanosleep(&millisecond, nullptr);
  errno = saved;
}

}  // namespace

extern "C" int begin_holding(void* address, const std::int32_t* watched) {
  page = static_cast<char*>(address), word = watched, before = *watched, faults = 0;
  struct sigaction action{};
  action.sa_sigaction = hold, action.sa_flags = SA_SIGINFO | SA_NODEFER;
  return sigaction(SIGSEGV, &action, &earlier) | mprotect(page, kPage, PROT_NONE);
}

// How many threads met the page while it was protected.
extern "C" int end_holding() {
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
  sigaction(SIGSEGV, &earlier, nullptr);
  return faults;
}
