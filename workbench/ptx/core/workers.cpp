#include "workers.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdlib>
#include <functional>
#include <iterator>
#include <latch>
#include <thread>
#include <utility>

#include "checks/waits.hpp"
#include "memory/allocation.hpp"

namespace workbench::ptx {

// A thread that waits for jobs, until it is destroyed.
class WorkerThread {
 public:
  WorkerThread() : thread_([this] { serve(); }) {}
  WorkerThread(const WorkerThread&) = delete;
  ~WorkerThread() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  // `job` must not throw, and the one before it must have finished.
  void start(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      job_ = std::move(job);
    }
    wake_.notify_one();
  }

  bool has_thrown = false;  // whether it has thrown its first exception, see Workers

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return job_ || ending_; });
      if (!job_) return;
      const std::function<void()> job = std::exchange(job_, nullptr);
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> job_;
  bool ending_ = false;
  std::thread thread_;  // declared last, so that it starts after all other members exist
};

namespace {

using Threads = std::vector<std::unique_ptr<WorkerThread>>;

// Threads without a launch. All are ended before the process forks: a child would have none of
// them, and Python warns of threads that it can see. In the child the mutex must be free.
class IdleThreads {
 public:
  // Never destroyed: a launch may still end while the process exits.
  static IdleThreads& all() {
    static IdleThreads* const idle = new IdleThreads;
    return *idle;
  }

  void move_to(Threads& threads, std::size_t count) {
    std::lock_guard lock(mutex_);
    for (; count && !idle_.empty(); --count) {
      threads.push_back(std::move(idle_.back()));
      idle_.pop_back();
    }
  }

  // Keeps threads for the next launch; those beyond the limit end here.
  void keep(Threads& threads) {
    std::lock_guard lock(mutex_);
    const std::size_t kept = std::min(most_ - std::min(most_, idle_.size()), threads.size());
    std::move(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(kept),
              std::back_inserter(idle_));
    threads.erase(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(kept));
  }

 private:
  IdleThreads() {
    idle_.reserve(most_);
    ::pthread_atfork(
        [] {
          all().mutex_.lock();
          all().idle_.clear();
        },
        [] { all().mutex_.unlock(); }, [] { all().mutex_.unlock(); });
    std::atexit([] {
      std::lock_guard lock(all().mutex_);
      all().most_ = 0;
      all().idle_.clear();
    });
  }

  std::mutex mutex_;
  std::size_t most_ = std::max(1u, std::thread::hardware_concurrency());
  Threads idle_;
};

// Reserved address space.
class Reserve {
 public:
  Reserve() {
    memory_ = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  Reserve(const Reserve&) = delete;
  ~Reserve() { give_back(); }
  void give_back() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, kBytes);
    memory_ = MAP_FAILED;
  }

 private:
  static constexpr std::size_t kBytes = 1 << 17;
  void* memory_;
};

bool has_limit(int resource) {
  rlimit limit;
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

void throw_once(Reserve& reserve) {
  reserve.give_back();
  try {
    throw Stop{};
  } catch (const Stop&) {}
}

}  // namespace

bool Workers::may_run_here() { return !has_limit(RLIMIT_AS) && !has_limit(RLIMIT_DATA); }

Workers::Workers(Launch& launch, std::vector<WorkerResult>& results) {
  find_threads(results.size());
  running_ = threads_.size();
  launch.waits->expect(static_cast<int>(running_));
  for (std::size_t i = 0; i < threads_.size(); ++i)
    threads_[i]->start([this, job = std::pair(&launch, &results[i])] {
      run_worker(*job.first, *job.second);
      done();
    });
}

void Workers::find_threads(std::size_t count) {
  threads_.reserve(count);
  IdleThreads::all().move_to(threads_, count);
  std::vector<std::unique_ptr<Reserve>> reserves(count);  // for threads that have not thrown
  const bool limited = !may_run_here();
  std::ptrdiff_t reserved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      if (i == threads_.size()) threads_.push_back(std::make_unique<WorkerThread>());
      if (!limited || threads_[i]->has_thrown) continue;
      reserves[i] = std::make_unique<Reserve>();
      reserved += 1;
    } catch (const std::exception& error) {  // no memory, or too many threads
      if (i == 0) throw OutOfMemory("a thread to run blocks on (%s)", error.what());
      threads_.resize(i);
      break;
    }
  }
  if (!reserved) return;
  std::latch thrown(reserved);
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!reserves[i]) continue;
    threads_[i]->has_thrown = true;
    threads_[i]->start([&thrown, reserve = reserves[i].get()] {
      throw_once(*reserve);
      thrown.count_down();
    });
  }
  thrown.wait();
}

Workers::~Workers() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return running_ == 0; });
  IdleThreads::all().keep(threads_);
}

bool Workers::wait_for(std::chrono::duration<double> time) {
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, time, [&] { return running_ == 0; });
}

void Workers::done() {
  std::lock_guard lock(mutex_);
  if (--running_ == 0) finished_.notify_all();
}

}  // namespace workbench::ptx
