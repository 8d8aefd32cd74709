// Copies and fills. Bounds are checked under the lock; the bytes move without it, so that threads
// copy in parallel.
#include <cstring>

#include "recording.hpp"

namespace workbench::driver {
namespace {

// One side of a copy: memory that the driver knows, or plain host memory.
struct Side {
  u8* host = nullptr;
  std::shared_ptr<Allocation> held;
  bool on_host = true;
};

Side side(unsigned type, u64 address, u64 bytes) {
  if (type == CU_MEMORYTYPE_ARRAY)
    throw Refused{CUDA_ERROR_NOT_SUPPORTED,
                  "CUDA arrays: the PTX machine has no textures; use linear memory"};
  if (type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "unknown memory type " + std::to_string(type)};
  Side found;
  if (!bytes) return found;
  if (address + bytes < address)
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the range goes past the end of all addresses"};
  if (type == CU_MEMORYTYPE_DEVICE)
    found.held = need_allocation(address, bytes);
  else
    found.held = find_allocation(address, bytes);
  if (found.held) {
    found.host = found.held->host + (address - found.held->address);
    found.on_host = found.held->where == Where::pinned || found.held->where == Where::registered;
    return found;
  }
  if (!mapped(address, bytes)) {
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the host memory of the copy does not exist: " +
                                                describe_address(address, bytes)};
  }
  if (held_in_part(address, bytes)) {
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  "the host memory of the copy is registered or allocated here in part; register "
                  "all of it or none: " +
                      describe_address(address, bytes)};
  }
  found.host = reinterpret_cast<u8*>(address);
  return found;
}

double seconds(const Side& to, const Side& from, u64 bytes) {
  const HookDevice& device = state().device;
  const double moved = static_cast<double>(bytes);
  const bool between_devices =
      to.held && from.held && to.held->context->device != from.held->context->device;
  if (to.on_host != from.on_host || between_devices)
    return device.operation_seconds + moved / device.host_bytes_per_second;
  return device.operation_seconds + 2 * moved / device.device_bytes_per_second;
}

// The shape of one copy: rows of `width` bytes, `height` rows in a slice. Offsets are in bytes.
struct Shape {
  u64 width = 0, height = 1, depth = 1;
  u64 from_row = 0, from_slice = 0, to_row = 0, to_slice = 0;
};

u64 extent(const Shape& shape, u64 row, u64 slice) {
  if (!shape.width || !shape.height || !shape.depth) return 0;
  return (shape.depth - 1) * slice + (shape.height - 1) * row + shape.width;
}

u64 offset_of(const Side& side) { return static_cast<u64>(side.host - side.held->host); }

void mark(const Side& target, const Side& source, const Shape& shape) {
  Unwritten missing;
  for (u64 z = 0; z < shape.depth; ++z) {
    for (u64 y = 0; y < shape.height; ++y) {
      const u64 to = z * shape.to_slice + y * shape.to_row;
      const u64 from = z * shape.from_slice + y * shape.from_row;
      const u64 offset = source.held ? offset_of(source) + from : 0;
      mark_copied(*target.held, offset_of(target) + to, source.held.get(), offset, shape.width);
      if (source.held) find_unwritten(*source.held, offset, shape.width, missing);
    }
  }
  if (missing.bytes)
    copy_origin(target.held->address + offset_of(target), source.held->address + missing.first);
}

// Reports bytes that a copy to the host reads although they were never written, once.
void check_written(Call& call, const Side& source, const Shape& shape) {
  const auto for_each_row = [&](auto&& visit) {
    for (u64 z = 0; z < shape.depth; ++z) {
      for (u64 y = 0; y < shape.height; ++y)
        visit(offset_of(source) + z * shape.from_slice + y * shape.from_row);
    }
  };
  Unwritten found;
  for_each_row([&](u64 row) { find_unwritten(*source.held, row, shape.width, found); });
  if (!found.bytes) return;
  // Bytes that no launch had as an argument get only a note, as a kernel that reads them is still
  // reported.
  if (has_been_used(source.held->address + found.first))
    for_each_row([&](u64 row) { mark_written(*source.held, row, shape.width); });
  tell_read(call, *source.held, found, shape.width * shape.height * shape.depth);
}

// The device's address of a side; 0 for the host's memory.
u64 device_address(const Side& side) {
  return side.held && !side.on_host ? side.held->address + offset_of(side) : 0;
}

void log_copy(const Side& target, const Side& source, const Shape& shape) {
  const u64 to = device_address(target), from = device_address(source);
  if (!to && !from) return;
  for (u64 z = 0; z < shape.depth; ++z) {
    for (u64 y = 0; y < shape.height; ++y) {
      const u64 to_row = z * shape.to_slice + y * shape.to_row;
      const u64 from_row = z * shape.from_slice + y * shape.from_row;
      if (!to)
        log(Logged::read, {from + from_row, shape.width});
      else if (from)
        log(Logged::copied, {to + to_row, from + from_row, shape.width});
      else
        log(Logged::written, {to + to_row}, source.host + from_row, shape.width);
    }
  }
}

// The rows and slices as the parameters of a graph's node.
CUDA_MEMCPY3D as_params(unsigned to_type, u64 to, unsigned from_type, u64 from,
                        const Shape& shape) {
  const auto rows = [](u64 slice, u64 row) { return row ? slice / row : 0; };
  CUDA_MEMCPY3D made{};
  made.srcMemoryType = from_type;
  made.srcHost = reinterpret_cast<const void*>(from);
  made.srcDevice = from;
  made.srcPitch = shape.from_row;
  made.srcHeight = rows(shape.from_slice, shape.from_row);
  made.dstMemoryType = to_type;
  made.dstHost = reinterpret_cast<void*>(to);
  made.dstDevice = to;
  made.dstPitch = shape.to_row;
  made.dstHeight = rows(shape.to_slice, shape.to_row);
  made.WidthInBytes = shape.width;
  made.Height = shape.height;
  made.Depth = shape.depth;
  return made;
}

// The accesses of a copy, in the order of its stream; row by row where rows have gaps. From memory
// that is not page-locked the host's bytes are taken at once; a copy to such memory waits.
void follow_order(Step& step, const Side& target, const Side& source, const Shape& shape,
                  bool waits) {
  const auto rows = [&](const Side& side, u64 row, u64 slice, u8 kind) {
    if (!side.held) return;
    const u64 begin = side.held->address + offset_of(side);
    const bool dense = (shape.height == 1 || row == shape.width) &&
                       (shape.depth == 1 || slice == row * shape.height);
    if (dense) return step.access({begin, begin + extent(shape, row, slice), -1, kind});
    for (u64 z = 0; z < shape.depth; ++z)
      for (u64 y = 0; y < shape.height; ++y) {
        const u64 at = begin + z * slice + y * row;
        step.access({at, at + shape.width, -1, kind});
      }
  };
  rows(source, shape.from_row, shape.from_slice, kReads);
  rows(target, shape.to_row, shape.to_slice, kWrites);
  const bool from_pageable = !source.held;
  if (!target.held || (waits && !from_pageable))
    step.wait();
  else if (waits)
    step.wait_for_earlier();
  step.end();
}

constexpr CUstream kBlocking = nullptr;
constexpr const char* kStaged =
    "a copy from memory that is not page-locked, whose call may return before its end";

void copy(Call& call, unsigned to_type, u64 to, unsigned from_type, u64 from, const Shape& shape,
          CUstream stream, bool waits);

// Puts a copy off, as a GPU may; false if it has to run now. The host's bytes are taken at once if
// they are not page-locked. The host waits for a copy to such memory.
bool put_off_copy(Call& call, unsigned to_type, u64 to, unsigned from_type, u64 from,
                  const Shape& shape, CUstream stream, bool waits) {
  if (!is_late()) return false;
  const u64 read = extent(shape, shape.from_row, shape.from_slice);
  const Side target = side(to_type, to, extent(shape, shape.to_row, shape.to_slice));
  const Side source = side(from_type, from, read);
  const bool is_staged = read && !source.held;
  if (waits || !target.held) catch_up(call, stream);
  if (!target.held || (waits && !is_staged)) return false;
  std::shared_ptr<std::vector<u8>> staged;
  if (is_staged) {
    staged = std::make_shared<std::vector<u8>>(source.host, source.host + read);
    from = reinterpret_cast<u64>(staged->data());
  }
  return put_off(call, stream, [=](Call& inner, CUstream on) {
    const auto kept = staged;
    copy(inner, to_type, to, from_type, from, shape, on, false);
  });
}

void copy(Call& call, unsigned to_type, u64 to, unsigned from_type, u64 from, const Shape& shape,
          CUstream stream, bool waits) {
  const std::shared_ptr<Context> context = context_of(call, stream);
  settle(call, *context, stream);
  if (waits) outside_captures("a copy that waits");
  if (capture_of(*context, stream)) {
    captured(call, stream, CU_GRAPH_NODE_TYPE_MEMCPY,
             copy_work(as_params(to_type, to, from_type, from, shape),
                       order_recorded(call, "a captured copy")));
    return;
  }
  if (put_off_copy(call, to_type, to, from_type, from, shape, stream, waits)) return;
  const bool is_staged = waits && from_type == CU_MEMORYTYPE_HOST && !find_allocation(from, 1);
  Step step(call, *context, stream, is_staged ? kStaged : "a copy");
  const Side target = side(to_type, to, extent(shape, shape.to_row, shape.to_slice));
  const Side source = side(from_type, from, extent(shape, shape.from_row, shape.from_slice));
  advance(*context, stream, seconds(target, source, shape.width * shape.height * shape.depth));
  if (target.held && !target.held->written.empty()) mark(target, source, shape);
  if (is_recording()) log_copy(target, source, shape);
  if (waits) synchronise(*context);
  if (shape.width) follow_order(step, target, source, shape, waits);
  if (source.held && !source.held->written.empty() && target.on_host)
    check_written(call, source, shape);
  call.lock.unlock();
  for (u64 z = 0; z < shape.depth && target.host && source.host; ++z) {
    for (u64 y = 0; y < shape.height; ++y) {
      std::memmove(target.host + z * shape.to_slice + y * shape.to_row,
                   source.host + z * shape.from_slice + y * shape.from_row, shape.width);
    }
  }
}

CUresult copy_bytes(unsigned to_type, u64 to, unsigned from_type, u64 from, u64 bytes,
                    CUstream stream, bool waits) {
  return entry([&](Call& call) {
    copy(call, to_type, to, from_type, from, Shape{.width = bytes}, stream, waits);
  });
}

u64 base_of(unsigned type, const void* host, u64 device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<u64>(host) : device;
}

// The distance between rows, which must be at least a row; a single row needs none.
u64 pitch(u64 given, u64 begin, u64 width, bool single, const char* which) {
  if (single && given == 0) return begin + width;
  if (begin > given || width > given - begin) {
    throw Refused{CUDA_ERROR_INVALID_VALUE, std::string(which) + "Pitch " + std::to_string(given) +
                                                " is less than the " +
                                                std::to_string(begin + width) + " bytes of a row"};
  }
  return given;
}

void check_size(u64 a, u64 b, u64 c) {
  constexpr u64 most = u64{1} << 46;
  if (a > most || b > most || c > most || (b && a > most / b) || (a && b && c > most / (a * b))) {
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the copy is larger than all memory"};
  }
}

CUresult copy_2d(const CUDA_MEMCPY2D* given, CUstream stream, bool waits) {
  return entry([&](Call& call) {
    const CUDA_MEMCPY2D& c = needed(given, "copy");
    const bool single = c.Height <= 1;
    const u64 from_pitch =
        pitch(c.srcPitch, c.srcXInBytes, c.WidthInBytes, single && !c.srcY, "src");
    const u64 to_pitch = pitch(c.dstPitch, c.dstXInBytes, c.WidthInBytes, single && !c.dstY, "dst");
    check_size(from_pitch, c.Height + c.srcY, 1), check_size(to_pitch, c.Height + c.dstY, 1);
    const Shape shape{
        .width = c.WidthInBytes, .height = c.Height, .from_row = from_pitch, .to_row = to_pitch};
    copy(call, c.dstMemoryType,
         base_of(c.dstMemoryType, c.dstHost, c.dstDevice) + c.dstY * to_pitch + c.dstXInBytes,
         c.srcMemoryType,
         base_of(c.srcMemoryType, c.srcHost, c.srcDevice) + c.srcY * from_pitch + c.srcXInBytes,
         shape, stream, waits);
  });
}

void copy_3d(Call& call, const CUDA_MEMCPY3D& c, CUstream stream, bool waits) {
  const bool flat = c.Depth <= 1;
  const u64 from_pitch =
      pitch(c.srcPitch, c.srcXInBytes, c.WidthInBytes, flat && c.Height <= 1 && !c.srcY, "src");
  const u64 to_pitch =
      pitch(c.dstPitch, c.dstXInBytes, c.WidthInBytes, flat && c.Height <= 1 && !c.dstY, "dst");
  const u64 from_height = flat && !c.srcZ ? std::max<u64>(c.srcHeight, 1) : c.srcHeight;
  const u64 to_height = flat && !c.dstZ ? std::max<u64>(c.dstHeight, 1) : c.dstHeight;
  if (!flat && (from_height < c.srcY + c.Height || to_height < c.dstY + c.Height)) {
    throw Refused{CUDA_ERROR_INVALID_VALUE,
                  "srcHeight or dstHeight is less than the rows of a slice"};
  }
  check_size(from_pitch, from_height, c.Depth + c.srcZ),
      check_size(to_pitch, to_height, c.Depth + c.dstZ);
  check_size(from_pitch, c.Height + c.srcY, 1), check_size(to_pitch, c.Height + c.dstY, 1);
  const Shape shape{
      c.WidthInBytes,      c.Height, c.Depth, from_pitch, from_pitch * from_height, to_pitch,
      to_pitch * to_height};
  copy(call, c.dstMemoryType,
       base_of(c.dstMemoryType, c.dstHost, c.dstDevice) + c.dstZ * shape.to_slice +
           c.dstY * to_pitch + c.dstXInBytes,
       c.srcMemoryType,
       base_of(c.srcMemoryType, c.srcHost, c.srcDevice) + c.srcZ * shape.from_slice +
           c.srcY * from_pitch + c.srcXInBytes,
       shape, stream, waits);
}

CUresult copy_3d(const CUDA_MEMCPY3D* given, CUstream stream, bool waits) {
  return entry([&](Call& call) { copy_3d(call, needed(given, "copy"), stream, waits); });
}

// Fills `height` rows of `count` elements.
template <class T>
void fill_rows(Call& call, CUdeviceptr to, u64 row_bytes, T value, u64 count, u64 height,
               CUstream stream) {
  const std::shared_ptr<Context> context = context_of(call, stream);
  settle(call, *context, stream);
  if (capture_of(*context, stream)) {
    captured(call, stream, CU_GRAPH_NODE_TYPE_MEMSET,
             fill_work({to, row_bytes, value, sizeof(T), count, height}));
    return;
  }
  check_size(count, sizeof(T), height);
  if (to % sizeof(T) || row_bytes % sizeof(T))
    throw Refused{CUDA_ERROR_INVALID_VALUE, "the address is not aligned to the element"};
  const u64 bytes = count * sizeof(T), row = pitch(row_bytes, 0, bytes, height <= 1, "dst");
  check_size(row, height, 1);
  const Side target =
      side(CU_MEMORYTYPE_DEVICE, to, extent(Shape{.width = bytes, .height = height}, row, 0));
  const Operation later = [=](Call& inner, CUstream on) {
    fill_rows(inner, to, row_bytes, value, count, height, on);
  };
  if (target.held && put_off(call, stream, later)) return;
  Step step(call, *context, stream, "a fill");
  advance(*context, stream,
          state().device.operation_seconds +
              static_cast<double>(bytes * height) / state().device.device_bytes_per_second);
  if (target.held && !target.on_host)
    log(Logged::filled, {to, row, static_cast<u64>(value), sizeof(T), count, height});
  for (u64 y = 0; y < height && target.held; ++y)
    mark_written(*target.held, offset_of(target) + y * row, bytes);
  for (u64 y = 0; y < height && target.held; ++y)
    step.writes(target.held->address + offset_of(target) + y * row, bytes);
  step.end();
  call.lock.unlock();
  for (u64 y = 0; y < height && target.host; ++y) {
    if constexpr (sizeof(T) == 1)
      std::memset(target.host + y * row, value, bytes);
    else
      for (u64 i = 0; i < count; ++i)
        std::memcpy(target.host + y * row + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
CUresult fill(CUdeviceptr to, u64 row_bytes, T value, u64 count, u64 height, CUstream stream) {
  return entry([&](Call& call) { fill_rows(call, to, row_bytes, value, count, height, stream); });
}

}  // namespace

NodeWork copy_work(const CUDA_MEMCPY3D& given, u32 recorded) {
  const Operation run = [given, recorded](Call& call, CUstream stream) {
    try {
      copy_3d(call, given, stream, false);
    } catch (const Refused& refused) {  // its memory was there when it was recorded
      if (!call.lock.owns_lock()) call.lock.lock();
      tell_gone(call, recorded, refused.why.c_str());
      throw;
    }
  };
  return {run, given};
}

NodeWork fill_work(const CUDA_MEMSET_NODE_PARAMS& given) {
  if (given.elementSize != 1 && given.elementSize != 2 && given.elementSize != 4) {
    throw Refused{CUDA_ERROR_INVALID_VALUE, "elements of a fill have 1, 2 or 4 bytes, not " +
                                                std::to_string(given.elementSize)};
  }
  const Operation run = [given](Call& call, CUstream stream) {
    const auto& [to, pitch, value, element, width, height] = given;
    if (element == 1)
      fill_rows(call, to, pitch, static_cast<u8>(value), width, height, stream);
    else if (element == 2)
      fill_rows(call, to, pitch, static_cast<u16>(value), width, height, stream);
    else
      fill_rows(call, to, pitch, value, width, height, stream);
  };
  return {run, given};
}

}  // namespace workbench::driver

using namespace workbench::driver;

namespace {
constexpr unsigned kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE,
                   kUnified = CU_MEMORYTYPE_UNIFIED;
u64 number(const void* pointer) { return reinterpret_cast<u64>(pointer); }
}  // namespace

CU_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t n) {
  return copy_bytes(kUnified, to, kUnified, from, n, kBlocking, true);
}
CU_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
  return copy_bytes(kUnified, to, kUnified, from, n, s, false);
}
CU_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t n) {
  return copy_bytes(kDevice, to, kHost, number(from), n, kBlocking, true);
}
CU_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t n) {
  return copy_bytes(kHost, number(to), kDevice, from, n, kBlocking, true);
}
CU_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n) {
  return copy_bytes(kDevice, to, kDevice, from, n, kBlocking, false);
}
CU_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t n, CUstream s) {
  return copy_bytes(kDevice, to, kHost, number(from), n, s, false);
}
CU_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t n, CUstream s) {
  return copy_bytes(kHost, number(to), kDevice, from, n, s, false);
}
CU_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
  return copy_bytes(kDevice, to, kDevice, from, n, s, false);
}

CU_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, kBlocking, true); }
CU_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, kBlocking, true); }
CU_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream s) { return copy_2d(c, s, false); }
CU_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* c) { return copy_3d(c, kBlocking, true); }
CU_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* c, CUstream s) { return copy_3d(c, s, false); }

CU_API cuMemsetD8_v2(CUdeviceptr to, u8 v, std::size_t n) {
  return fill(to, 0, v, n, 1, kBlocking);
}
CU_API cuMemsetD16_v2(CUdeviceptr to, u16 v, std::size_t n) {
  return fill(to, 0, v, n, 1, kBlocking);
}
CU_API cuMemsetD32_v2(CUdeviceptr to, u32 v, std::size_t n) {
  return fill(to, 0, v, n, 1, kBlocking);
}
CU_API cuMemsetD8Async(CUdeviceptr to, u8 v, std::size_t n, CUstream s) {
  return fill(to, 0, v, n, 1, s);
}
CU_API cuMemsetD16Async(CUdeviceptr to, u16 v, std::size_t n, CUstream s) {
  return fill(to, 0, v, n, 1, s);
}
CU_API cuMemsetD32Async(CUdeviceptr to, u32 v, std::size_t n, CUstream s) {
  return fill(to, 0, v, n, 1, s);
}
CU_API cuMemsetD2D8_v2(CUdeviceptr to, std::size_t p, u8 v, std::size_t w, std::size_t h) {
  return fill(to, p, v, w, h, kBlocking);
}
CU_API cuMemsetD2D16_v2(CUdeviceptr to, std::size_t p, u16 v, std::size_t w, std::size_t h) {
  return fill(to, p, v, w, h, kBlocking);
}
CU_API cuMemsetD2D32_v2(CUdeviceptr to, std::size_t p, u32 v, std::size_t w, std::size_t h) {
  return fill(to, p, v, w, h, kBlocking);
}
CU_API cuMemsetD2D8Async(CUdeviceptr to, std::size_t p, u8 v, std::size_t w, std::size_t h,
                         CUstream s) {
  return fill(to, p, v, w, h, s);
}
CU_API cuMemsetD2D16Async(CUdeviceptr to, std::size_t p, u16 v, std::size_t w, std::size_t h,
                          CUstream s) {
  return fill(to, p, v, w, h, s);
}
CU_API cuMemsetD2D32Async(CUdeviceptr to, std::size_t p, u32 v, std::size_t w, std::size_t h,
                          CUstream s) {
  return fill(to, p, v, w, h, s);
}
