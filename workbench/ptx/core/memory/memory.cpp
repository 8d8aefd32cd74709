// ld and st: every state space, element type and vector width.
#include "memory/access.hpp"
#include "memory/interleave.hpp"

namespace workbench::ptx {
namespace {

template <class M, class R>
inline R read_as(const u8* from) {
  M value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<R>(value);
}

constexpr u32 kMaximumElements = 8;

// Loads for all lanes; from(lane) is the address.
template <class M, class R, class F>
inline void load_lanes(u8* registers, const Instruction& in, F from) {
  const Slot* const data = in.access.data;
  if constexpr (sizeof(M) == 4 && sizeof(R) == 4) {
    u32* to[4];
    bool all = in.elements == 2 || in.elements == 4;
    for (u32 i = 0; all && i < in.elements; ++i)
      all = data[i] != kNoSlot, to[i] = at<u32>(registers, data[i]);
    if (all) return in.elements == 4 ? gather_quads(from, to) : gather_pairs(from, to);
  }
  for (u32 i = 0; i < in.elements; ++i) {
    if (data[i] == kNoSlot) continue;
    R* destination = at<R>(registers, data[i]);
    for (u32 lane = 0; lane < kLanes; ++lane)
      destination[lane] = read_as<M, R>(from(lane) + i * sizeof(M));
  }
}

// Loads contiguous values with any alignment.
template <class M, class R>
inline void load_row(const u8* from, R* destination) {
  typedef M Value __attribute__((aligned(1), may_alias));
  static_assert(alignof(Value) == 1);
  const Value* const values = reinterpret_cast<const Value*>(from);
  PTX_LANES {
    destination[lane] = static_cast<R>(values[lane]);
  }
}

template <class M, class R>
inline void store_row(u8* to, const R* source) {
  typedef M Value __attribute__((aligned(1), may_alias));
  static_assert(alignof(Value) == 1);
  Value* const values = reinterpret_cast<Value*>(to);
  PTX_LANES {
    values[lane] = static_cast<M>(source[lane]);
  }
}

template <class M, class R>
[[gnu::noinline]] void load_scattered(u8* registers, const Instruction& in,
                                      const Located& located) {
  load_lanes<M, R>(registers, in, [&](u32 lane) { return located.at(lane); });
}

template <class M, class R>
inline void load_located(u8* registers, const Instruction& in, const Located& located) {
  const LaneOffsets::Order order = located.offsets->order;
  if (in.elements != 1 || in.access.data[0] == kNoSlot || order == LaneOffsets::Order::other)
    return load_scattered<M, R>(registers, in, located);
  R* const destination = at<R>(registers, in.access.data[0]);
  if (order == LaneOffsets::Order::row) return load_row<M>(located.first, destination);
  const R value = read_as<M, R>(located.first);
  PTX_LANES {
    destination[lane] = value;
  }
}

template <Space S, class M, class R, bool Observed>
[[gnu::noinline]] void load_resolved(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve_access<S, Observed>(registers, in, mask, warp, sizeof(M) * in.elements, false, true,
                              request);
  if (request.located.first) return load_located<M, R>(registers, in, request.located);
  if (request.mask == kAllLanes)
    return load_lanes<M, R>(registers, in, [&](u32 lane) { return request.host[lane]; });
  for (u32 i = 0; i < in.elements; ++i) {
    if (in.access.data[i] == kNoSlot) continue;
    const u64 offset = i * sizeof(M);
    R* destination = at<R>(registers, in.access.data[i]);
    // With checks, lanes whose access was refused read zero.
    PTX_FOR_EACH_LANE (lane, mask)
      destination[lane] =
          request.mask >> lane & 1 ? read_as<M, R>(request.host[lane] + offset) : R{0};
  }
}

// M is the type in memory, R the register's; a signed M is sign-extended.
template <Space S, class M, class R, bool Observed>
void load(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if constexpr (is_known(S) && !Observed)
    if (mask == kAllLanes)
      if (const Located located = locate<S>(registers, in, warp, sizeof(M) * in.elements, false);
          located.first)
        return load_located<M, R>(registers, in, located);
  load_resolved<S, M, R, Observed>(registers, in, mask, warp);
}

// Stores for all lanes; to(lane) is the address. Of lanes with the same address, the last one wins.
template <class M, class R, class F>
inline void store_lanes_to(u8* registers, const Instruction& in, F to) {
  if constexpr (sizeof(M) == 4 && sizeof(R) == 4) {
    if (in.elements == 2 || in.elements == 4) {
      const u32* from[4];
      for (u32 i = 0; i < in.elements; ++i) from[i] = at<const u32>(registers, in.access.data[i]);
      return in.elements == 4 ? scatter_quads(from, to) : scatter_pairs(from, to);
    }
  }
  for (u32 i = 0; i < in.elements; ++i) {
    const R* source = at<const R>(registers, in.access.data[i]);
    for (u32 lane = 0; lane < kLanes; ++lane) {
      const M value = static_cast<M>(source[lane]);
      std::memcpy(to(lane) + i * sizeof(M), &value, sizeof value);
    }
  }
}

// Stores with checks, which compare the new bytes with the old ones.
template <class M, class R>
void store_checked(u8* registers, const Instruction& in, const Request& request, Warp& warp) {
  const u32 bytes = sizeof(M) * in.elements;
  if constexpr (sizeof(M) == sizeof(R))
    if (in.elements == 1)
      return ptx::store_lanes(warp, in, request, at<const u8>(registers, in.access.data[0]), bytes);
  alignas(64) u8 values[kLanes * kMaximumElements * sizeof(M)];
  store_lanes_to<M, R>(registers, in, [&](u32 lane) { return values + lane * bytes; });
  ptx::store_lanes(warp, in, request, values, bytes);
}

template <class M, class R>
[[gnu::noinline]] void store_scattered(u8* registers, const Instruction& in,
                                       const Located& located) {
  store_lanes_to<M, R>(registers, in, [&](u32 lane) { return located.at(lane); });
}

template <class M, class R>
inline void store_located(u8* registers, const Instruction& in, const Located& located) {
  if (in.elements == 1 && located.offsets->order == LaneOffsets::Order::row)
    return store_row<M>(located.first, at<const R>(registers, in.access.data[0]));
  store_scattered<M, R>(registers, in, located);
}

template <Space S, class M, class R, bool Observed>
[[gnu::noinline]] void store_resolved(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve_access<S, Observed>(registers, in, mask, warp, sizeof(M) * in.elements, true, false,
                              request);
  if constexpr (Observed && S != Space::local && S != Space::param)
    if (__builtin_expect(
            (request.shadowed | request.shadowed_global | request.shadowed_remote) != 0, 0))
      return store_checked<M, R>(registers, in, request, warp);
  if (request.located.first) return store_located<M, R>(registers, in, request.located);
  if (request.mask == kAllLanes)
    return store_lanes_to<M, R>(registers, in, [&](u32 lane) { return request.host[lane]; });
  for (u32 i = 0; i < in.elements; ++i) {
    const u64 offset = i * sizeof(M);
    const R* source = at<const R>(registers, in.access.data[i]);
    PTX_FOR_EACH_LANE (lane, request.mask) {
      const M value = static_cast<M>(source[lane]);
      std::memcpy(request.host[lane] + offset, &value, sizeof value);
    }
  }
}

template <Space S, class M, class R, bool Observed>
void store(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  if constexpr (is_known(S) && !Observed)
    if (mask == kAllLanes)
      if (const Located located = locate<S>(registers, in, warp, sizeof(M) * in.elements, true);
          located.first)
        return store_located<M, R>(registers, in, located);
  store_resolved<S, M, R, Observed>(registers, in, mask, warp);
}

// st.bulk: stores zeros to shared memory, as a weak store of each lane (PTX ISA, st.bulk, which
// names no proxy).
template <Space S, class T>
void fill(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  constexpr u32 least = 8, most = 32;  // bytes that are stored together
  constexpr u64 limit = u64{1} << 24;  // limit of bytes in PTX
  constexpr u8 zeros[most] = {};
  const T* sizes = at<const T>(registers, in.access.data[0]);
  PTX_FOR_EACH_LANE (lane, mask) {
    const u64 size = sizes[lane];
    u64 address = in.flags & kNarrowBase
                      ? at<const u32>(registers, in.address)[lane] + static_cast<u32>(in.offset)
                      : at<const u64>(registers, in.address)[lane] + static_cast<u64>(in.offset);
    if (size % least || size > limit || (S == Space::generic && !in_shared(address))) {
      warp.block->problem(
          Problem::bulk_misuse, in, warp.thread(lane), 0, 0,
          size % least || size > limit
              ? "st.bulk of " + std::to_string(size) +
                    " bytes, where a multiple of 8 to 16777216 belongs"
              : "st.bulk to an address outside of shared memory, which alone it fills");
      continue;
    }
    for (u64 done = 0; done < size;) {
      const u64 odd = (address + done) | (size - done) | most;
      const u32 bytes = std::max(least, static_cast<u32>(odd & (~odd + 1)));
      Request request;
      for (u64& each : request.address) each = address + done;
      resolve_addresses<S>(in, 1u << lane, warp, bytes, true, false, request);
      if (!request.mask) break;
      store_lane(warp, in, request, lane, zeros, bytes);
      done += bytes;
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
  const auto add_fill = [&](const char* name, Handler run, const char* sources) {
    table.push_back({name, run, Kind::plain, Class::shared, "", sources});
  };
  add_fill("st.bulk.shared.b32", &fill<Space::shared, u32>, "address,b32");
  add_fill("st.bulk.shared.b64", &fill<Space::shared, u64>, "address,b64");
  add_fill("st.bulk.generic.b32", &fill<Space::generic, u32>, "address,b32");
  add_fill("st.bulk.generic.b64", &fill<Space::generic, u64>, "address,b64");
  add_param<u8, u16>(table), add_param<u8, u32>(table), add_param<u8, u64>(table);
  add_param<s8, u16>(table), add_param<s8, u32>(table), add_param<s8, u64>(table);
  add_param<u16, u16>(table), add_param<u16, u32>(table), add_param<u16, u64>(table);
  add_param<s16, u32>(table), add_param<s16, u64>(table);
  add_param<u32, u32>(table), add_param<u32, u64>(table), add_param<s32, u64>(table),
      add_param<u64, u64>(table);
}

}  // namespace workbench::ptx
