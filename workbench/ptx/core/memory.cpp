// ld and st: every space, element type and vector width.
#include "access.hpp"

namespace workbench::ptx {
namespace {

template <class M, class R>
inline R read_as(const u8* from) {
  M value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<R>(value);
}

constexpr u32 kMaximumElements = 8;

// M is the type in memory, R the register's; a signed M extends by its sign.
template <Space S, class M, class R, bool Observed>
void load(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S, Observed>(registers, in, mask, warp, sizeof(M) * in.elements, false, true, request);
  for (u32 i = 0; i < in.elements; ++i) {
    if (in.access.data[i] == kNoSlot) continue;
    const u64 offset = i * sizeof(M);
    R* destination = at<R>(registers, in.access.data[i]);
    if (request.mask == kAllLanes) {
      for (int lane = 0; lane < kLanes; ++lane)
        destination[lane] = read_as<M, R>(request.host[lane] + offset);
    } else {
      // Lanes that were refused (with checks) read zero.
      PTX_FOR_EACH_LANE (lane, mask)
        destination[lane] =
            request.mask >> lane & 1 ? read_as<M, R>(request.host[lane] + offset) : R{0};
    }
  }
}

template <Space S, class M, class R, bool Observed>
void store(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S, Observed>(registers, in, mask, warp, sizeof(M) * in.elements, true, false, request);
  if constexpr (Observed && S != Space::local && S != Space::param) {
    if (__builtin_expect(
            (request.shadowed | request.shadowed_global | request.shadowed_remote) != 0, 0)) {
      alignas(64) M values[kLanes * kMaximumElements];
      for (u32 i = 0; i < in.elements; ++i) {
        const R* source = at<const R>(registers, in.access.data[i]);
        for (u32 lane = 0; lane < kLanes; ++lane)
          values[lane * in.elements + i] = static_cast<M>(source[lane]);
      }
      store_lanes(warp, in, request, reinterpret_cast<const u8*>(values), sizeof(M) * in.elements);
      return;
    }
  }
  for (u32 i = 0; i < in.elements; ++i) {
    const u64 offset = i * sizeof(M);
    const R* source = at<const R>(registers, in.access.data[i]);
    PTX_FOR_EACH_LANE (lane, request.mask) {
      const M value = static_cast<M>(source[lane]);
      std::memcpy(request.host[lane] + offset, &value, sizeof value);
    }
  }
}

// Parameters are the same for every lane.
template <class M, class R>
void load_param(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const std::vector<u8>& params = warp.block->launch->params;
  const u64 offset = static_cast<u64>(in.offset), bytes = sizeof(M) * in.elements;
  const bool inside = bytes <= params.size() && offset <= params.size() - bytes;
  if (!inside) {
    warp.block->problem(Problem::parameter_out_of_bounds, in, warp.thread(first_lane(mask)), offset,
                        static_cast<u32>(bytes));
  }
  for (u32 i = 0; i < in.elements; ++i) {
    if (in.access.data[i] == kNoSlot) continue;
    const R value = inside ? read_as<M, R>(params.data() + offset + i * sizeof(M)) : R{0};
    R* destination = at<R>(registers, in.access.data[i]);
    if (mask == kAllLanes) PTX_LANES {
        destination[lane] = value;
      }
    else
      PTX_LANES {
        destination[lane] = (mask >> lane & 1) ? value : destination[lane];
      }
  }
}

constexpr const char* kSpaceNames[] = {"global", "shared", "local", "generic", "param", "constant"};
constexpr Class kSpaceClasses[] = {Class::global, Class::shared, Class::local,
                                   Class::global, Class::other,  Class::constant};

template <class M>
std::string memory_name() {
  return (std::is_signed_v<M> ? "s" : "u") + std::to_string(8 * sizeof(M));
}

// "ld.global.s8/32": 8 signed bits of global memory into a 32-bit register.
template <Space S, class M, class R>
void add_pair(Table& table, bool with_store) {
  const std::string tail = std::string(kSpaceNames[int(S)]) + "." + memory_name<M>() + "/" +
                           std::to_string(8 * sizeof(R));
  const Class group = kSpaceClasses[int(S)];
  table.push_back({"ld." + tail, Handlers(&load<S, M, R, false>, &load<S, M, R, true>), Kind::plain,
                   group, "vector", "address"});
  if (with_store)
    table.push_back({"st." + tail, Handlers(&store<S, M, R, false>, &store<S, M, R, true>),
                     Kind::plain, group, "", "address,vector"});
}

template <Space S>
void add_space(Table& table) {
  constexpr bool writable = S != Space::param && S != Space::constant;
  add_pair<S, u8, u16>(table, writable), add_pair<S, u8, u32>(table, writable),
      add_pair<S, u8, u64>(table, writable);
  add_pair<S, s8, u16>(table, false), add_pair<S, s8, u32>(table, false),
      add_pair<S, s8, u64>(table, false);
  add_pair<S, u16, u16>(table, writable), add_pair<S, u16, u32>(table, writable),
      add_pair<S, u16, u64>(table, writable);
  add_pair<S, s16, u32>(table, false), add_pair<S, s16, u64>(table, false);
  add_pair<S, u32, u32>(table, writable), add_pair<S, u32, u64>(table, writable),
      add_pair<S, s32, u64>(table, false);
  add_pair<S, u64, u64>(table, writable);
}

template <class M, class R>
void add_param(Table& table) {
  table.push_back({"ld.param.direct." + memory_name<M>() + "/" + std::to_string(8 * sizeof(R)),
                   &load_param<M, R>, Kind::plain, Class::other, "vector", "address"});
}

}  // namespace

void add_memory(Table& table) {
  add_space<Space::global>(table), add_space<Space::shared>(table), add_space<Space::local>(table);
  add_space<Space::generic>(table), add_space<Space::param>(table),
      add_space<Space::constant>(table);
  add_param<u8, u16>(table), add_param<u8, u32>(table), add_param<u8, u64>(table);
  add_param<s8, u16>(table), add_param<s8, u32>(table), add_param<s8, u64>(table);
  add_param<u16, u16>(table), add_param<u16, u32>(table), add_param<u16, u64>(table);
  add_param<s16, u32>(table), add_param<s16, u64>(table);
  add_param<u32, u32>(table), add_param<u32, u64>(table), add_param<s32, u64>(table),
      add_param<u64, u64>(table);
}

}  // namespace workbench::ptx
