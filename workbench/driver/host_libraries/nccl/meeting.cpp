#include "meeting.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <random>

namespace workbench::nccl {

namespace files = std::filesystem;
using Clock = std::chrono::steady_clock;

enum State : u32 { kAbsent, kPresent, kLeft };

struct Member {
  std::atomic<u32> state;
  std::atomic<int> device;
  std::atomic<u64> thread, started;  // the thread of its latest call, and the start of its process
  std::atomic<u64> contributed, finished;  // numbers of collectives
};

struct Board {
  std::atomic<u32> bell;    // changes whenever a rank does something
  std::atomic<u32> ranks;   // as the first one told
  std::atomic<u32> failed;  // 1 while the reason is written, then 2
  char failure[4 * kTextBytes];
  Member members[kMostRanks];
  std::atomic<u64> sent[kMostRanks][kMostRanks], expected[kMostRanks][kMostRanks];
};

namespace {

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr auto kNote = std::chrono::seconds(20);
constexpr auto kLimit = std::chrono::minutes(10);  // the default of torch's process groups, too
constexpr int kLooksPerSignal = 10;

std::string root() {
  const char* const chosen = std::getenv("TMPDIR");
  return (files::path(chosen && *chosen ? chosen : "/tmp") /
          ("workbench-nccl-" + std::to_string(::getuid())))
      .string();
}

// Removes what processes that were killed have left.
void remove_stale(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : files::directory_iterator(folder, ignored)) {
    const files::path board = entry.path() / "board";
    if (files::file_size(board, ignored) != sizeof(Board)) continue;
    auto* const at = static_cast<Board*>(shared_file(board.string(), sizeof(Board)));
    bool any = false, all_gone = true;
    for (const Member& one : at->members) {
      const u64 started = one.started;
      if (one.state != kPresent || !one.thread) continue;
      any = true;
      all_gone &= started != started_at(Thread::of(one.thread).process);
    }
    ::munmap(at, sizeof(Board));
    if (any && all_gone) files::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string new_folder() {
  const std::string all = root();
  struct stat found{};
  if (::mkdir(all.c_str(), 0700) != 0 && errno != EEXIST)
    throw Failed{kSystemError, all + " cannot be made: " + std::strerror(errno)};
  if (::lstat(all.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::getuid())
    throw Failed{kSystemError, all + " is not a folder of this user: remove it, or set TMPDIR"};
  remove_stale(all);
  std::random_device random;
  char name[20];
  std::snprintf(name, sizeof name, "%08x%08x", random(), random());
  const std::string folder = all + "/" + name;
  if (folder.size() >= kIdBytes)
    throw Failed{kSystemError, "TMPDIR is too long for NCCL's identifiers: " + all};
  if (::mkdir(folder.c_str(), 0700) != 0)
    throw Failed{kSystemError, folder + " cannot be made: " + std::strerror(errno)};
  return folder;
}

Bytes::Bytes(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat found{};
  if (file < 0 || ::fstat(file, &found) != 0)
    throw Failed{kSystemError, path + " cannot be read: " + std::strerror(errno)};
  bytes_ = static_cast<std::size_t>(found.st_size);
  at_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  if (at_ == MAP_FAILED) throw std::bad_alloc();
}

Bytes::Bytes(Bytes&& other) noexcept : at_(other.at_), bytes_(other.bytes_) { other.at_ = nullptr; }

Bytes::~Bytes() {
  if (at_) ::munmap(at_, bytes_);
}

Meeting::Meeting(std::string folder, int ranks, int rank, int device)
    : folder_(std::move(folder)), ranks_(ranks), rank_(rank) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks)
    throw Failed{kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                       "; allowed are ranks 0 to n - 1 of at most " +
                                       std::to_string(kMostRanks)};
  ::mkdir(folder_.c_str(), 0700);
  board_ = static_cast<Board*>(shared_file(folder_ + "/board", sizeof(Board)));
  u32 told = 0;
  if (!board_->ranks.compare_exchange_strong(told, static_cast<u32>(ranks)) &&
      told != static_cast<u32>(ranks)) {
    throw Failed{kInvalidArgument, "rank " + std::to_string(rank) + " tells " +
                                       std::to_string(ranks) + " ranks, another one " +
                                       std::to_string(told)};
  }
  Member& own = board_->members[rank];
  u32 absent = kAbsent;
  own.device = device;
  if (!own.state.compare_exchange_strong(absent, kPresent))
    throw Failed{kInvalidUsage, "two callers are rank " + std::to_string(rank) +
                                    " of one communicator: give each a rank of its own"};
  here();
  ring();
}

Meeting::~Meeting() {
  board_->members[rank_].state = kLeft;
  ring();
  bool all_left = true;
  for (int i = 0; i < ranks_; ++i) all_left &= board_->members[i].state == kLeft;
  ::munmap(board_, sizeof(Board));
  std::error_code ignored;
  if (all_left) files::remove_all(folder_, ignored);
}

void Meeting::here() const {
  const Thread self = Thread::current();
  Member& own = board_->members[rank_];
  if (!own.started || Thread::of(own.thread).process != self.process)
    own.started = started_at(self.process);
  own.thread = self.number();
}

void Meeting::ring() const {
  ++board_->bell;
  ::syscall(SYS_futex, &board_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::vector<int> Meeting::absent() const {
  std::vector<int> found;
  for (int i = 0; i < ranks_; ++i)
    if (!board_->members[i].thread) found.push_back(i);
  return found;
}

void Meeting::check_devices() const {
  for (int i = 0; i < ranks_; ++i) {
    for (int j = 0; j < i; ++j) {
      const int device = board_->members[i].device;
      if (device != board_->members[j].device) continue;
      throw Failed{kInvalidUsage, "ranks " + std::to_string(j) + " and " + std::to_string(i) +
                                      " both use device " + std::to_string(device) +
                                      ": give each its own (torch.cuda.set_device(rank)), of as "
                                      "many as there are ranks (devices=, --devices)"};
    }
  }
}

std::string Meeting::file(char kind, int from, int to, u64 number) const {
  return folder_ + "/" + kind + std::to_string(from) + "-" + std::to_string(to) + "-" +
         std::to_string(number);
}

void Meeting::write(const std::string& path, const std::string& text, const std::string& place,
                    const void* bytes, u64 size) const {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  char head[2 * kTextBytes] = {};
  std::snprintf(head, kTextBytes, "%s", text.c_str());
  std::snprintf(head + kTextBytes, kTextBytes, "%s", place.c_str());
  bool written = file >= 0 && ::write(file, head, sizeof head) == sizeof head;
  for (u64 done = 0; written && done < size;) {
    const ssize_t more = ::write(file, static_cast<const char*>(bytes) + done, size - done);
    written = more > 0;
    done += written ? static_cast<u64>(more) : 0;
  }
  const int why = errno;
  if (file >= 0) ::close(file);
  if (!written) throw Failed{kSystemError, path + " cannot be written: " + std::strerror(why)};
}

u64 Meeting::contribute(const std::string& text, const std::string& place, const void* bytes,
                        u64 size) {
  Member& own = board_->members[rank_];
  const u64 number = own.contributed;
  for (bool all_read = true; all_read && removed_ < number;) {
    for (int i = 0; i < ranks_; ++i) all_read &= board_->members[i].finished > removed_;
    if (all_read) ::unlink(file('c', rank_, rank_, removed_++).c_str());
  }
  write(file('c', rank_, rank_, number), text, place, bytes, size);
  here();
  own.contributed = number + 1;
  ring();
  return number;
}

std::vector<int> Meeting::missing(u64 number) const {
  std::vector<int> found;
  for (int i = 0; i < ranks_; ++i)
    if (board_->members[i].contributed <= number) found.push_back(i);
  return found;
}

std::vector<Bytes> Meeting::contributions(u64 number) const {
  std::vector<Bytes> found;
  for (int i = 0; i < ranks_; ++i) {
    found.emplace_back(file('c', i, i, number));
    if (std::strcmp(found[0].text(), found.back().text()) == 0) continue;
    std::string text = "the ranks disagree on collective " + std::to_string(number + 1) +
                       " of their communicator: ";
    for (const auto& [rank, bytes] : {std::pair(0, &found[0]), std::pair(i, &found.back())}) {
      text += (rank ? ", rank " : "rank ") + std::to_string(rank) + " calls " + bytes->text();
      if (*bytes->place()) text += std::string(" at ") + bytes->place();
    }
    throw Failed{kInvalidUsage,
                 text + ". All ranks have to issue the same collectives in the same order"};
  }
  return found;
}

void Meeting::finish(u64 number) {
  Member& own = board_->members[rank_];
  if (own.finished <= number) own.finished = number + 1;
}

u64 Meeting::send(int to, const std::string& text, const std::string& place, const void* bytes,
                  u64 size) {
  auto& sent = board_->sent[rank_][to];
  const u64 number = sent;
  write(file('m', rank_, to, number), text, place, bytes, size);
  here();
  sent = number + 1;
  ring();
  return number;
}

u64 Meeting::expect(int from) {
  here();
  const u64 number = board_->expected[from][rank_]++;
  ring();
  return number;
}

bool Meeting::is_expected(int to, u64 number) const { return board_->expected[rank_][to] > number; }

bool Meeting::is_sent(int from, u64 number) const { return board_->sent[from][rank_] > number; }

Bytes Meeting::take(int from, u64 number) const {
  const std::string path = file('m', from, rank_, number);
  Bytes found(path);
  ::unlink(path.c_str());
  return found;
}

void Meeting::fail(const std::string& why) {
  u32 none = 0;
  if (!board_->failed.compare_exchange_strong(none, 1)) return;
  std::snprintf(board_->failure, sizeof board_->failure, "%s", why.c_str());
  board_->failed = 2;
  ring();
}

std::string Meeting::failure() const { return board_->failed == 2 ? board_->failure : ""; }

std::string Meeting::named(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) {
    const u64 thread = board_->members[rank].thread;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    text += thread ? " (process " + std::to_string(Thread::of(thread).process) + ")"
                   : " (which has not come)";
  }
  return text;
}

bool Meeting::is_there(const std::string& doing, const Missing& missing) const {
  const std::vector<int> others = missing();
  if (others.empty()) return true;
  if (const std::string why = failure(); !why.empty()) throw Failed{kRemoteError, why};
  for (const int rank : others) {
    const Member& one = board_->members[rank];
    const u64 thread = one.thread, started = one.started;
    if (one.state == kAbsent || !thread) continue;
    const char* why = nullptr;
    if (one.state == kLeft)
      why = " has ended its communicator, or its process, without this call";
    else if (started != started_at(Thread::of(thread).process))
      why = " has died: its own output has the reason";
    if (!why) continue;
    const std::vector<int> still = missing();  // it may have come before it ended
    if (std::ranges::find(still, rank) != still.end())
      throw Failed{kRemoteError, doing + " waits for " + named({rank}) + ", which" + why};
  }
  return false;
}

void Meeting::wait(const std::string& doing, const Missing& missing) {
  const auto begin = Clock::now();
  std::unique_ptr<Wait> known;
  std::vector<int> told;  // to `known`
  bool noted = false;
  for (int looks = 0;; ++looks) {
    const u32 bell = board_->bell;
    const auto waited = Clock::now() - begin;
    if (waited < kLook ? missing().empty() : is_there(doing, missing)) return;
    const std::vector<int> others = missing();
    if (waited >= kLook) {
      if (others != told) {
        known.reset();
        std::vector<Thread> threads;
        for (const int one : others) threads.push_back(Thread::of(board_->members[one].thread));
        known = std::make_unique<Wait>(files::path(folder_).parent_path().string(), threads,
                                       doing + " waits for " + named(others));
        told = others;
      }
      if (const std::string why = known->deadlock(); !why.empty()) throw Failed{kInvalidUsage, why};
      if (looks % kLooksPerSignal == 0 && workbench_driver_interrupted())
        throw Failed{kInternalError, doing + " was interrupted"};
    }
    if (waited > kNote && !noted) {
      noted = true;
      std::fprintf(stderr, "workbench: %s waits for %s\n", doing.c_str(), named(others).c_str());
    }
    if (waited > kLimit)
      throw Failed{kRemoteError, doing + " has waited ten minutes for " + named(others) +
                                     ", which never made this call"};
    const timespec limit{0, std::chrono::nanoseconds(kLook).count()};
    ::syscall(SYS_futex, &board_->bell, FUTEX_WAIT, bell, &limit, nullptr, 0);
  }
}

}  // namespace workbench::nccl
