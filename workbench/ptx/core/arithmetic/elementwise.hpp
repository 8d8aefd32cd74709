// Turns a lane function into a table entry: `op("add.s32", Class::integer, [](u32 a, u32 b) -> u32
// { ... })`.
//
// The operand widths of the entry come from the lambda's signature, so that the decoder can check
// them.
#pragma once
#include <tuple>
#include <utility>

#include "arithmetic/half.hpp"
#include "codes.hpp"
#include "warp.hpp"

namespace workbench::ptx {

template <class T>
constexpr const char* width_name() {
  if constexpr (sizeof(T) == 1)
    return "b8";
  else if constexpr (sizeof(T) == 2)
    return "b16";
  else if constexpr (sizeof(T) == 4)
    return "b32";
  else
    return "b64";
}

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class F, class R, class... A>
struct Signature<R (F::*)(A...) const> {
  using Result = R;
  using Arguments = std::tuple<A...>;
  static constexpr std::size_t count = sizeof...(A);
};

template <class... T>
std::string join_widths(std::type_identity<std::tuple<T...>>) {
  std::string text;
  ((text += (text.empty() ? "" : ","), text += width_name<T>()), ...);
  return text;
}

// ---- one value per lane, or `Pack` 16-bit values per 32-bit lane ----

template <int Pack, class F, class R, class... A, std::size_t... I>
inline void apply(u8* registers, const Instruction& in, u32 mask,
                  std::type_identity<std::tuple<A...>>, std::index_sequence<I...>) {
  const std::tuple<const A*...> sources{at<const A>(registers, in.elementwise.source[I])...};
  alignas(64) R buffer[static_cast<std::size_t>(kLanes * Pack)];
  R* destination = at<R>(registers, in.elementwise.destination);
  R* out = mask == kAllLanes ? destination : buffer;
#pragma GCC ivdep
  for (int i = 0; i < kLanes * Pack; ++i) out[i] = F{}(std::get<I>(sources)[i]...);
  if (mask == kAllLanes) return;
  using Lane = std::conditional_t<Pack == 1, R, u32>;
  blend(reinterpret_cast<Lane*>(destination), reinterpret_cast<const Lane*>(buffer), mask);
}

template <int Pack, class F>
void elementwise(u8* registers, const Instruction& in, u32 mask, Warp&) {
  using S = Signature<F>;
  apply<Pack, F, typename S::Result>(registers, in, mask,
                                     std::type_identity<typename S::Arguments>{},
                                     std::make_index_sequence<S::count>{});
}

template <class F>
TableEntry op(std::string name, Class group, F) {
  using S = Signature<F>;
  return {std::move(name),
          &elementwise<1, F>,
          Kind::plain,
          group,
          width_name<typename S::Result>(),
          join_widths(std::type_identity<typename S::Arguments>{})};
}

// Applies a function to both halves of .f16x2 and .bf16x2 registers.
template <class F>
TableEntry packed_op(std::string name, Class group, F) {
  using S = Signature<F>;
  std::string sources = "b32";
  for (std::size_t i = 1; i < S::count; ++i) sources += ",b32";
  return {std::move(name), &elementwise<2, F>, Kind::plain, group, "b32", sources};
}

// ---- with an immediate: the function's last argument is Instruction::immediate ----

template <int Pack, class F, class R, class... A, std::size_t... I>
inline void apply_immediate(u8* registers, const Instruction& in, u32 mask,
                            std::type_identity<std::tuple<A...>>, std::index_sequence<I...>) {
  const auto sources = std::make_tuple(
      at<const std::tuple_element_t<I, std::tuple<A...>>>(registers, in.elementwise.source[I])...);
  alignas(64) R buffer[static_cast<std::size_t>(kLanes * Pack)];
  const s64 immediate = in.immediate;
  R* destination = at<R>(registers, in.elementwise.destination);
  R* out = mask == kAllLanes ? destination : buffer;
#pragma GCC ivdep
  for (int i = 0; i < kLanes * Pack; ++i) out[i] = F{}(std::get<I>(sources)[i]..., immediate);
  if (mask == kAllLanes) return;
  using Lane = std::conditional_t<Pack == 1, R, u32>;
  blend(reinterpret_cast<Lane*>(destination), reinterpret_cast<const Lane*>(buffer), mask);
}

template <int Pack, class F>
void elementwise_immediate(u8* registers, const Instruction& in, u32 mask, Warp&) {
  using S = Signature<F>;
  apply_immediate<Pack, F, typename S::Result>(registers, in, mask,
                                               std::type_identity<typename S::Arguments>{},
                                               std::make_index_sequence<S::count - 1>{});
}

template <class F>
TableEntry immediate_op(std::string name, Class group, std::string sources, F) {
  using S = Signature<F>;
  return {std::move(name), &elementwise_immediate<1, F>,     Kind::plain,
          group,           width_name<typename S::Result>(), sources};
}

// Applies a function to both halves of packed registers.
template <class F>
TableEntry packed_immediate_op(std::string name, Class group, std::string sources, F) {
  return {std::move(name), &elementwise_immediate<2, F>, Kind::plain, group, "b32", sources};
}

// ---- set a predicate ----

inline u32 pack_mask(const u8* flags) {
  u32 mask = 0;
  for (int group = 0; group < 4; ++group) {
    u64 eight;
    std::memcpy(&eight, flags + 8 * group, 8);
    mask |= static_cast<u32>((eight * 0x0102040810204080ull) >> 56) << (8 * group);
  }
  return mask;
}

// Writes the result of a comparison, combined with the third operand, and its inverse.
inline void set_comparison(u8* registers, const Instruction& in, u32 mask, u32 result) {
  u32 first = result, second = ~result;
  const Combine how = in.combine;
  if (how != Combine::none) {
    const u32 third = *at<u32>(registers, in.comparison.third) ^ in.negated;
    const auto combine = [&](u32 x) {
      return how == Combine::and_ ? x & third : how == Combine::or_ ? x | third : x ^ third;
    };
    first = combine(result), second = combine(~result);
  }
  if (in.comparison.result != kNoSlot) set_predicate(registers, in.comparison.result, mask, first);
  if (in.comparison.inverse != kNoSlot)
    set_predicate(registers, in.comparison.inverse, mask, second);
}

template <class F, class T>
void compare(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* a = at<const T>(registers, in.comparison.a);
  const T* b = at<const T>(registers, in.comparison.b);
  alignas(64) u8 flags[kLanes];
  PTX_LANES {
    flags[lane] = F{}(a[lane], b[lane]) ? 1 : 0;
  }
  set_comparison(registers, in, mask, pack_mask(flags));
}

template <class F>
TableEntry compare_op(std::string name, F) {
  using S = Signature<F>;
  using T = std::tuple_element_t<0, typename S::Arguments>;
  const std::string width = width_name<T>();
  return {std::move(name), &compare<F, T>, Kind::plain,
          Class::integer,  "pred,pred",    width + "," + width};
}

}  // namespace workbench::ptx
