// The 128 bytes of tensor maps, and the instructions that make them: tensormap.replace and
// tensormap.cp_fenceproxy.
#include "memory/tensor_map.hpp"

#include <algorithm>
#include <array>

#include "checks/map_watch.hpp"
#include "memory/access.hpp"

namespace workbench::ptx {
namespace {

// Maps are aligned to half of their size.
constexpr u32 kHalf = kMapBytes / 2;

u64 read_bits(const u8* map, u32 begin, u32 count) {
  u64 value = 0;
  for (u32 done = 0; done < count;) {
    const u32 at = begin + done;
    const u32 taken = std::min(8 - at % 8, count - done);
    value |= u64{map[at / 8] >> at % 8 & ((1u << taken) - 1)} << done;
    done += taken;
  }
  return value;
}

void write_bits(u8* map, u32 begin, u32 count, u64 value) {
  for (u32 done = 0; done < count;) {
    const u32 at = begin + done;
    const u32 taken = std::min(8 - at % 8, count - done);
    const u32 mask = ((1u << taken) - 1) << at % 8;
    const u32 bits = static_cast<u32>(value >> done) << at % 8 & mask;
    map[at / 8] = static_cast<u8>((map[at / 8] & ~mask) | bits);
    done += taken;
  }
}

u64 read_field(const u8* map, MapField field, u32 ordinal) {
  const MapPlace& place = kMapPlaces[static_cast<u32>(field)];
  u64 value = read_bits(map, place.low.begin + ordinal * place.low.apart, place.low.count);
  if (place.high.count)
    value |= read_bits(map, place.high.begin + ordinal * place.high.apart, place.high.count)
             << place.low.count;
  return (value << place.shift) + place.less;
}

// The bits of the used half that belong to a field or a mark.
std::array<u8, kMapUsedBytes> known_bits() {
  std::array<u8, kMapUsedBytes> known{};
  for (const MapPlace& place : kMapPlaces)
    for (u32 i = 0; i < place.ordinals; ++i) {
      write_bits(known.data(), place.low.begin + i * place.low.apart, place.low.count, ~u64{});
      write_bits(known.data(), place.high.begin + i * place.high.apart, place.high.count, ~u64{});
    }
  for (u32 mark : kMapMarks) write_bits(known.data(), mark, 1, 1);
  write_bits(known.data(), kMapLarge, 1, 1);
  return known;
}

u8 type_of(u64 code) {
  const auto found = std::find(std::begin(kMapTypeCodes), std::end(kMapTypeCodes), code);
  return static_cast<u8>(found - std::begin(kMapTypeCodes));  // kCount for a code of no type
}

// The fault of a value that the field cannot hold, in words, or null.
const char* fault_of(MapField field, u64 value) {
  switch (field) {
    case MapField::box_dim: return value - 1 < 256 ? nullptr : "a box whose extent is not 1 to 256";
    case MapField::element_stride:
      return value - 1 < 8 ? nullptr : "an element stride that is not 1 to 8";
    case MapField::global_stride:
      return value % 16 == 0 && value >> 40 == 0
                 ? nullptr
                 : "a stride that is no multiple of 16 bytes below 2^40";
    case MapField::rank:
      return value < 5 ? nullptr : "a rank that is not 0 to 4, one less than it is";
    case MapField::elemtype:
      return value < std::size(kMapTypeCodes) ? nullptr : "an element type that is not 0 to 15";
    case MapField::swizzle_mode:
    case MapField::swizzle_atomicity:
      return value < 4 ? nullptr : "a swizzle that the machine does not know";
    case MapField::interleave_layout:
      return value < 3 ? nullptr : "an interleaved layout that is not 0 to 2";
    case MapField::fill_mode: return value < 2 ? nullptr : "a fill mode that is not 0 or 1";
    default: return nullptr;
  }
}

template <Space S, class T>
void replace(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  Request request;
  resolve<S>(registers, in, mask, warp, kMapUsedBytes, true, true, request);
  const T* values = at<const T>(registers, in.map_change.value);
  const MapField field = static_cast<MapField>(in.map_change.field);
  PTX_FOR_EACH_LANE (lane, request.mask) {
    if (MapWatch* maps = warp.block->launch->maps)
      maps->changed(warp, in, lane,
                    request.address[lane] | (S == Space::shared ? kSharedWindow : 0), false);
    if (const char* fault = fault_of(field, values[lane])) {
      warp.block->problem(Problem::bulk_misuse, in, warp.thread(lane), 0, 0, fault);
      return;
    }
    write_map_field(request.host[lane], field, in.map_change.ordinal, values[lane]);
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
  if (from + kMapBytes > block.launch->shared_bytes || from % kMapAlignment) {
    block.problem(from % kMapAlignment ? Problem::misaligned : Problem::shared_out_of_bounds, in,
                  warp.thread(lane), from, kMapBytes);
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

void write_map_field(u8* map, MapField field, u32 ordinal, u64 value) {
  const MapPlace& place = kMapPlaces[static_cast<u32>(field)];
  if (field == MapField::elemtype) value = kMapTypeCodes[value];
  value = (value - place.less) >> place.shift;
  write_bits(map, place.low.begin + ordinal * place.low.apart, place.low.count, value);
  if (place.high.count)
    write_bits(map, place.high.begin + ordinal * place.high.apart, place.high.count,
               value >> place.low.count);
}

TensorMap read_map(const u8* map) {
  static const std::array<u8, kMapUsedBytes> known = known_bits();
  TensorMap read{};
  const auto field = [&](MapField name, u32 ordinal = 0) { return read_field(map, name, ordinal); };
  read.address = field(MapField::global_address);
  for (u32 d = 0; d < TensorMap::kMostDimensions; ++d) {
    if (d) read.strides[d - 1] = field(MapField::global_stride, d - 1);
    read.sizes[d] = field(MapField::global_dim, d);
    read.box[d] = static_cast<u32>(field(MapField::box_dim, d));
    read.steps[d] = static_cast<u32>(field(MapField::element_stride, d));
  }
  read.rank_less_one = static_cast<u8>(field(MapField::rank));
  read.type = type_of(field(MapField::elemtype));
  read.interleave = static_cast<u8>(field(MapField::interleave_layout));
  read.swizzle = static_cast<u8>(field(MapField::swizzle_mode));
  read.atomicity = static_cast<u8>(field(MapField::swizzle_atomicity));
  read.fill = static_cast<u8>(field(MapField::fill_mode));
  read.empty = true;
  for (u32 i = 0; i < kMapUsedBytes; ++i) {
    read.empty &= map[i] == 0;
    read.strange |= (map[i] & ~known[i]) != 0;
  }
  return read;
}

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
