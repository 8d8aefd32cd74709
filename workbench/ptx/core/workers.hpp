// The threads that run the blocks of a launch.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "machine.hpp"

namespace workbench::ptx {

class WorkerThread;

// A thread for each of the results, for the lifetime of this object. Threads are kept for the next
// launch, because starting one takes longer than many a small launch: as many as there are
// processors, until the process ends or forks.
//
// The C library ends the process if a thread has no memory for the variables of its first
// exception. So where the process has a memory limit, each thread throws one at its start, just
// after reserved address space was given back for the pages that its allocator takes. No thread
// takes more memory before all have thrown.
class Workers {
 public:
  // Whether a launch with one worker may run in the calling thread. It starts at once there, while
  // waking a sleeping thread takes longer than a small launch runs.
  static bool may_run_here();
  // Runs the launch on the workers. If the process cannot have more threads, fewer do the work.
  // Throws OutOfMemory if it can have none.
  Workers(Launch& launch, std::vector<WorkerResult>& results);
  Workers(const Workers&) = delete;
  ~Workers();

  // Waits for at most `time`. Returns true if all workers are done.
  bool wait_for(std::chrono::duration<double> time);

 private:
  void find_threads(std::size_t count);
  void done();

  std::vector<std::unique_ptr<WorkerThread>> threads_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::size_t running_ = 0;
};

}  // namespace workbench::ptx
