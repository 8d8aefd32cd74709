// Copies read global memory when they are issued. As nobody notices before somebody writes there,
// they do so when they land, or when a warp of their worker is about to write between the addresses
// that they read.
//
// So nothing is copied twice in most kernels, and the processor has fetched a source by the time
// that it is read.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

// Lanes of a warp have issued a cp.async; an mbarrier of a block counts a load.
void expect_read(Warp& warp);
void expect_read(Block& block, const BulkCopy& load);
// Reads the sources of all copies that are unread.
void read_sources(WorkerResult& worker);

// In a kernel with copies: has whatever writes global memory call read_sources first.
// `writers`: how such an instruction is executed, by its place.
void put_reads_first(Kernel& kernel, std::vector<Handlers> writers);
// Whether an instruction of that name may write global memory, beside bulk stores, which look to it
// themselves.
bool writes_global(const std::string& name);

}  // namespace workbench::ptx
