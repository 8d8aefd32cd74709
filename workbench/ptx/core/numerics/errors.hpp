// Handlers that compute in float64 beside an instruction, and sum up how its results differ.
#pragma once
#include "numerics/watch.hpp"

namespace workbench::ptx::numerics {

// Puts handlers that follow errors around those of a watched kernel.
void follow_errors(WatchedKernel& kernel, const std::vector<const TableEntry*>& entries);

// ---- the parts: a file for each ----

// Reads the floats of a register with their shadows; `lanes`: where its bits are.
void read_lanes(const RegisterShadows& shadows, const u8* lanes, Slot slot, Type type, Lanes& out);
// Gives the floats of a register their shadows, in the lanes of `mask`.
void write_lanes(RegisterShadows& shadows, const u8* registers, Slot slot, Type type, u32 mask,
                 const Lanes& from);
// Adds results to the errors of an instruction. `expected`: what it would give exactly, of the
// floats that it had; `incoming`: the largest relative error of its operands. Sets the blame where
// the instruction added more than came in.
void add_errors(Errors& errors, u32 pc, u32 mask, Type type, Lanes& results, const f64* expected,
                const f64* incoming);

std::optional<Handlers> shadowed_arithmetic(const TableEntry& entry, const Kernel& kernel,
                                            const Site& site, ShadowSite& shadow);
std::optional<Handlers> shadowed_movement(const TableEntry& entry, const Site& site,
                                          ShadowSite& shadow);
std::optional<Handlers> shadowed_access(const TableEntry& entry, const Site& site,
                                        ShadowSite& shadow);
std::optional<Handlers> shadowed_code(const TableEntry& entry, const Site& site,
                                      ShadowSite& shadow);
std::optional<Handlers> shadowed_product(const TableEntry& entry, const Site& site);

}  // namespace workbench::ptx::numerics
