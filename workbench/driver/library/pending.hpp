// Calls that wait for other processes: see pending.cpp.
#pragma once
#include "driver.hpp"
#include "host_calls.hpp"

namespace workbench::driver {

std::shared_ptr<Pending> make_pending(HostEnd end, std::shared_ptr<void> data);
// Keeps the memory that the call writes.
void hold(Pending& pending, std::vector<std::shared_ptr<Allocation>> memory);

}  // namespace workbench::driver
