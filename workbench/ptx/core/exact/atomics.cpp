// Float atomics on elements.
#include "exact/handlers.hpp"
#include "exact/lanes.hpp"
#include "memory/access.hpp"

namespace workbench::ptx::exact {
namespace {

template <class T, u16 (*Combine)(u16, u16)>
typename T::Bits combined(typename T::Bits a, typename T::Bits b) {
  return T::write(Combine(T::read(a), T::read(b)));
}

template <class T, u16 (*Combine)(u16, u16)>
u32 combined_pair(u32 a, u32 b) {
  const auto half = [&](int shift) {
    return combined<T, Combine>(static_cast<u16>(a >> shift), static_cast<u16>(b >> shift));
  };
  return u32{half(16)} << 16 | half(0);
}

template <Space S, class Bits, Bits (*New)(Bits, Bits), bool Observed>
void run(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S, Observed>(registers, in, mask, warp, sizeof(Bits), true, true, request);
  const Bits* operand = at<const Bits>(registers, in.atomic.operand);
  alignas(64) Bits results[kLanes] = {};
  PTX_FOR_EACH_LANE (lane, request.mask) {
    Bits* target = reinterpret_cast<Bits*>(request.host[lane]);
    Bits old = __atomic_load_n(target, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(target, &old, New(old, operand[lane]), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    results[lane] = old;
  }
  if (in.atomic.old != kNoSlot) write_lanes(registers, in.atomic.old, mask, results);
}

using Found = std::optional<Handlers>;

template <class Bits, Bits (*New)(Bits, Bits)>
Found in_space(const std::string& space) {
  if (space == "global")
    return Handlers(&run<Space::global, Bits, New, false>, &run<Space::global, Bits, New, true>);
  if (space == "shared")
    return Handlers(&run<Space::shared, Bits, New, false>, &run<Space::shared, Bits, New, true>);
  if (space == "generic")
    return Handlers(&run<Space::generic, Bits, New, false>, &run<Space::generic, Bits, New, true>);
  return std::nullopt;
}

template <u16 (*Combine)(u16, u16)>
Found of_type(const std::string& space, const std::string& type) {
  if (type == "f32") return in_space<u32, &combined<Single, Combine>>(space);
  if (type == "f64") return in_space<u64, &combined<Double, Combine>>(space);
  if (type == "f16") return in_space<u16, &combined<HalfCode, Combine>>(space);
  if (type == "bf16") return in_space<u16, &combined<BfloatCode, Combine>>(space);
  if (type == "f16x2") return in_space<u32, &combined_pair<HalfCode, Combine>>(space);
  if (type == "bf16x2") return in_space<u32, &combined_pair<BfloatCode, Combine>>(space);
  return std::nullopt;
}

}  // namespace

Found atomic(const std::string& name) {
  const Name parts(name);  // atom, {space, operation}, type
  if (parts.base != "atom" || parts.modifiers.size() != 2) return std::nullopt;
  const std::string &space = parts.modifiers[0], &operation = parts.modifiers[1];
  if (operation == "add") return of_type<&sum>(space, parts.type);
  if (operation == "min") return of_type<&lesser>(space, parts.type);
  if (operation == "max") return of_type<&greater>(space, parts.type);
  return std::nullopt;
}

}  // namespace workbench::ptx::exact
