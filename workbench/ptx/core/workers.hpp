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

// A thread for each of some results, from the beginning to the end of this object. They are kept
// for the next launch, as to start one takes longer than many a small launch does: as many as there
// are processors, until the process ends or forks.
//
// The C library ends the process where a thread has no memory for the variables that its first
// exception needs. So where the process has a limit, each throws one at its start, when address
// space that was put by for that is given back: its allocator asks the system for pages. Nobody
// takes more before all have done so.
class Workers {
 public:
  // Whether a launch of one worker may run in the calling thread, which starts at once where one
  // that sleeps takes longer to wake than a small launch runs.
  static bool may_run_here();
  // Runs the launch on them. There are fewer where the process can have no more: those that there
  // are do the work. Throws OutOfMemory where it can have none.
  Workers(Launch& launch, std::vector<WorkerResult>& results);
  Workers(const Workers&) = delete;
  ~Workers();

  // True if all of them are done, after so much time at most.
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
