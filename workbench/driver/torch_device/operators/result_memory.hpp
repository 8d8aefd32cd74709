// Memory for results of the CPU's kernels, before they are copied to the device.
//
// Large blocks are kept from one operation to the next: mapping fresh pages for each result takes
// longer than the copy to the device, and for cheap operations longer than the operation.
#pragma once

namespace workbench::torch_device {

// Takes the place of torch's allocator for the host, to which it leaves all other memory.
void keep_result_memory();

// While an object of this class lives, this thread's large allocations reuse kept blocks.
class ResultsReused {
 public:
  ResultsReused();
  ~ResultsReused();
  ResultsReused(const ResultsReused&) = delete;

 private:
  bool before_;
};

}  // namespace workbench::torch_device
