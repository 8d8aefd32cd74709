// Handlers that compute on elements of the ring, by the names of the plain ones.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine.hpp"

namespace workbench::ptx::exact {

// The parts of an instruction's name: "fma.ftz.f32" is fma, {ftz}, f32.
struct Name {
  std::string base, type;
  std::vector<std::string> modifiers;
  explicit Name(const std::string& name);
  bool has(const std::string& modifier) const;
  // Whether all modifiers are among these.
  bool only(std::initializer_list<const char*> allowed) const;
};

// Each returns nothing for a name that it has no handler for.
std::optional<Handlers> arithmetic(const Name& name);
std::optional<Handlers> comparison(const Name& name);
std::optional<Handlers> conversion(const Name& name);
std::optional<Handlers> reduction(const Name& name);  // over lanes: collective.cpp
std::optional<Handlers> atomic(const std::string& name);
std::optional<Handlers> matrix_product(const std::string& name);
std::optional<Handlers> small_product(const std::string& form);   // without "mma."
std::optional<Handlers> sparse_product(const std::string& form);  // the same: matrix_sparse.cpp
std::optional<Handlers> group_product(const std::string& name);   // warp_group.cpp
std::optional<Handlers> tensor_product(const std::string& name);  // tensor_product.cpp

// Whether an instruction of that name works on floats, so that it needs a handler here.
bool on_floats(const std::string& name);
std::optional<Handlers> handlers_for(const std::string& name);

// Ends the launch: the handler of an instruction without a rule.
void refuse(u8* registers, const Instruction& in, u32 mask, Warp& warp);

}  // namespace workbench::ptx::exact
