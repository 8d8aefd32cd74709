// Memory for what the CPU's kernels make and the device then gets a copy of.
//
// Large blocks are kept from one operation to the next: mapping fresh pages for each result takes
// longer than the copy to the device, and for cheap operations longer than the operation.
#pragma once

namespace workbench::torch_device {

// Takes the place of torch's allocator for the host, to which it leaves all other memory.
void keep_result_memory();

// While one exists, this thread's large allocations come from blocks that were kept.
class ResultsReused {
 public:
  ResultsReused();
  ~ResultsReused();
  ResultsReused(const ResultsReused&) = delete;

 private:
  bool before_;
};

}  // namespace workbench::torch_device
