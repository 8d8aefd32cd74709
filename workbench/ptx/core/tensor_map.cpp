// tensormap.replace and tensormap.cp_fenceproxy: tensor maps that kernels make.
#include "tensor_map.hpp"

#include "access.hpp"
#include "map_watch.hpp"

namespace workbench::ptx {
namespace {

constexpr u32 kHalf = sizeof(TensorMap) / 2;  // maps are aligned to half of their size

template <Space S, class T>
void replace(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S>(registers, in, mask, warp, kHalf, true, true, request);
  const T* values = at<const T>(registers, in.map_field.value);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    if (MapWatch* maps = warp.block->launch->maps)
      maps->changed(warp, in, lane,
                    request.address[lane] | (S == Space::shared ? kSharedWindow : 0), false);
    std::memcpy(request.host[lane] + in.map_field.begin, &values[lane], in.map_field.bytes);
  }
}

// The lanes of the warp copy one map together, from shared to global memory.
void copy_map(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request to;
  const u32 first = mask & -mask, lane = static_cast<u32>(first_lane(mask));
  resolve<Space::global>(registers, in, first, warp, kHalf, true, false, to);
  const Slot slot = in.map_copy.source;
  const u64 base = in.map_copy.wide ? at<const u64>(registers, slot)[lane] & kWindowMask
                                    : at<const u32>(registers, slot)[lane];
  const u64 from = base + in.map_copy.offset;
  Block& block = *warp.block;
  if (from + sizeof(TensorMap) > block.launch->shared_bytes || from % alignof(TensorMap)) {
    block.problem(from % alignof(TensorMap) ? Problem::misaligned : Problem::shared_out_of_bounds,
                  in, warp.thread(lane), from, sizeof(TensorMap));
    return;
  }
  if (!to.mask) return;
  if (MapWatch* maps = block.launch->maps) maps->changed(warp, in, lane, to.address[lane], true);
  store_lane(warp, in, to, lane, block.shared + from, kHalf);
  for (u64& address : to.address) address += kHalf;
  resolve_addresses<Space::global>(in, first, warp, kHalf, true, false, to);
  if (to.mask) store_lane(warp, in, to, lane, block.shared + from + kHalf, kHalf);
}

void release(u8*, const Instruction&, u32, Warp& warp) {
  if (MapWatch* maps = warp.block->launch->maps) maps->release(warp);
}

void acquire(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  MapWatch* maps = warp.block->launch->maps;
  if (!maps) return;
  const u64* addresses = at<const u64>(registers, in.address);
  PTX_FOR_EACH_LANE (lane, mask) maps->acquire(warp, addresses[lane] + static_cast<u64>(in.offset));
}

}  // namespace

void add_tensor_maps(Table& table) {
  const auto add = [&](const char* name, Handler run, Class group, const char* sources,
                       Kind kind = Kind::plain) {
    table.push_back({name, run, kind, group, "", sources});
  };
  add("tensormap.replace.shared.b32", &replace<Space::shared, u32>, Class::shared, "address,b32");
  add("tensormap.replace.shared.b64", &replace<Space::shared, u64>, Class::shared, "address,b64");
  add("tensormap.replace.global.b32", &replace<Space::global, u32>, Class::global, "address,b32");
  add("tensormap.replace.global.b64", &replace<Space::global, u64>, Class::global, "address,b64");
  add("fence.proxy.tensormap.release", &release, Class::sync, "");
  add("fence.proxy.tensormap.acquire", &acquire, Class::sync, "address");
  add("tensormap.cp_fenceproxy", &copy_map, Class::global, "address,address", Kind::collective);
}

}  // namespace workbench::ptx
