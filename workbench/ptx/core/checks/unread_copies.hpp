// Delayed reads of copies' sources. A copy reads global memory when it is issued, but only a later
// write there makes that visible; so the machine reads when the copy lands, or just before a warp
// of its worker writes in the range of addresses that unread copies read.
//
// So most kernels copy nothing twice, and the processor has prefetched a source by the time that it
// is read.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

// Notes a cp.async that lanes of a warp have issued, or a load that an mbarrier of a block counts.
void expect_read(Warp& warp);
void expect_read(Block& block, const BulkCopy& load);
// Reads the sources of all unread copies.
void read_sources(WorkerResult& worker);

// In a kernel with copies, makes every handler that writes global memory call read_sources first.
// `writers`: their original handlers, by instruction.
void put_reads_first(Kernel& kernel, std::vector<Handlers> writers);
// Whether the instruction of that name may write global memory. Bulk stores are not included, as
// they call read_sources themselves.
bool writes_global(const std::string& name);

}  // namespace workbench::ptx
