// Copies and fills. A copy's kind has to match its pointers; a mismatch, undefined on a GPU, is
// refused here.
#include "runtime.hpp"

namespace workbench::runtime {
namespace {

bool is_device_memory(const void* pointer) {
  unsigned type = 0;
  u8 managed = 0;
  const int which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* values[] = {&type, &managed};
  must(cuPointerGetAttributes(2, which, values, address_of(pointer)));
  return type == CU_MEMORYTYPE_DEVICE && !managed;
}

constexpr const char* kNames[] = {"cudaMemcpyHostToHost", "cudaMemcpyHostToDevice",
                                  "cudaMemcpyDeviceToHost", "cudaMemcpyDeviceToDevice",
                                  "cudaMemcpyDefault"};

void check_host(const char* which, const void* pointer, CopyKind kind) {
  if (!is_device_memory(pointer)) return;
  throw Failed{cudaErrorInvalidValue,
               std::string(which) + " is device memory, and the copy is " + kNames[kind]};
}

void check_kind(const void* to, const void* from, CopyKind kind) {
  if (kind < kHostToHost || kind > kByAddress)
    throw Failed{cudaErrorInvalidMemcpyDirection, "no copy has the kind " + std::to_string(kind)};
  if (kind == kHostToHost || kind == kHostToDevice) check_host("src", from, kind);
  if (kind == kHostToHost || kind == kDeviceToHost) check_host("dst", to, kind);
}

struct Types {
  unsigned to, from;
};

Types types_of(CopyKind kind) {
  const bool by_address = kind == kHostToHost || kind == kByAddress;
  const unsigned plain = by_address ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
  return {kind == kHostToDevice || kind == kDeviceToDevice ? CU_MEMORYTYPE_DEVICE : plain,
          kind == kDeviceToHost || kind == kDeviceToDevice ? CU_MEMORYTYPE_DEVICE : plain};
}

CUDA_MEMCPY3D box(void* to, std::size_t to_pitch, std::size_t to_rows, const void* from,
                  std::size_t from_pitch, std::size_t from_rows, Extent extent, CopyKind kind) {
  check_kind(to, from, kind);
  CUDA_MEMCPY3D c{};
  const Types types = types_of(kind);
  c.srcMemoryType = types.from;
  c.srcHost = from;
  c.srcDevice = address_of(from);
  c.srcPitch = from_pitch;
  c.srcHeight = from_rows;
  c.dstMemoryType = types.to;
  c.dstHost = to;
  c.dstDevice = address_of(to);
  c.dstPitch = to_pitch;
  c.dstHeight = to_rows;
  c.WidthInBytes = extent.width;
  c.Height = extent.height;
  c.Depth = extent.depth;
  return c;
}

CUresult copy(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  if (!bytes) return CUDA_SUCCESS;
  check_kind(to, from, kind);
  switch (kind) {
    case kHostToDevice: return cuMemcpyHtoD_v2(address_of(to), from, bytes);
    case kDeviceToHost: return cuMemcpyDtoH_v2(to, address_of(from), bytes);
    case kDeviceToDevice: return cuMemcpyDtoD_v2(address_of(to), address_of(from), bytes);
    default: return cuMemcpy(address_of(to), address_of(from), bytes);
  }
}

CUresult copy_async(void* to, const void* from, std::size_t bytes, CopyKind kind, CUstream stream) {
  if (!bytes) return CUDA_SUCCESS;
  check_kind(to, from, kind);
  switch (kind) {
    case kHostToDevice: return cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, stream);
    case kDeviceToHost: return cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, stream);
    case kDeviceToDevice:
      return cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), bytes, stream);
    default: return cuMemcpyAsync(address_of(to), address_of(from), bytes, stream);
  }
}

}  // namespace

void* part_of(const void* symbol, std::size_t offset, std::size_t bytes) {
  const Variable variable = variable_of(symbol);
  if (offset > variable.bytes || bytes > variable.bytes - offset) {
    throw Failed{cudaErrorInvalidValue, std::to_string(bytes) + " bytes from byte " +
                                            std::to_string(offset) + " of a variable of " +
                                            std::to_string(variable.bytes) + " bytes"};
  }
  return reinterpret_cast<void*>(variable.address + offset);
}

CUDA_MEMCPY3D driver_copy(const Copy3D& given) {
  if (given.from_array || given.to_array)
    throw Failed{cudaErrorNotSupported,
                 "CUDA arrays: the PTX machine has no textures; use linear memory"};
  CUDA_MEMCPY3D c = box(given.to.pointer, given.to.pitch, given.to.rows, given.from.pointer,
                        given.from.pitch, given.from.rows, given.extent, given.kind);
  c.srcXInBytes = given.from_position.x;
  c.srcY = given.from_position.y;
  c.srcZ = given.from_position.z;
  c.dstXInBytes = given.to_position.x;
  c.dstY = given.to_position.y;
  c.dstZ = given.to_position.z;
  return c;
}

CUDA_MEMCPY3D driver_copy(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  return box(to, 0, 0, from, 0, 0, {bytes, 1, 1}, kind);
}

}  // namespace workbench::runtime

using namespace workbench::runtime;

CUDA_API cudaMemcpy(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  return call([&] { return copy(to, from, bytes, kind); });
}

CUDA_API cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, CopyKind kind,
                         CUstream stream) {
  return call([&] { return copy_async(to, from, bytes, kind, stream); });
}

CUDA_API cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                      std::size_t width, std::size_t height, CopyKind kind) {
  return call([&] {
    const CUDA_MEMCPY3D c =
        box(to, to_pitch, height, from, from_pitch, height, {width, height, 1}, kind);
    return cuMemcpy3D_v2(&c);
  });
}

CUDA_API cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, CopyKind kind, CUstream stream) {
  return call([&] {
    const CUDA_MEMCPY3D c =
        box(to, to_pitch, height, from, from_pitch, height, {width, height, 1}, kind);
    return cuMemcpy3DAsync_v2(&c, stream);
  });
}

CUDA_API cudaMemcpy3D(const Copy3D* given) {
  return call([&] {
    const CUDA_MEMCPY3D c = driver_copy(needed(given, "parameters"));
    return cuMemcpy3D_v2(&c);
  });
}

CUDA_API cudaMemcpy3DAsync(const Copy3D* given, CUstream stream) {
  return call([&] {
    const CUDA_MEMCPY3D c = driver_copy(needed(given, "parameters"));
    return cuMemcpy3DAsync_v2(&c, stream);
  });
}

CUDA_API cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                        std::size_t bytes) {
  return call([&] {
    return cuMemcpyPeer(address_of(to), primary_context(to_device), address_of(from),
                        primary_context(from_device), bytes);
  });
}

CUDA_API cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                             std::size_t bytes, CUstream stream) {
  return call([&] {
    return cuMemcpyPeerAsync(address_of(to), primary_context(to_device), address_of(from),
                             primary_context(from_device), bytes, stream);
  });
}

CUDA_API cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                            std::size_t offset, CopyKind kind) {
  return call([&] { return copy(part_of(symbol, offset, bytes), from, bytes, kind); });
}

CUDA_API cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                              CopyKind kind) {
  return call([&] { return copy(to, part_of(symbol, offset, bytes), bytes, kind); });
}

CUDA_API cudaMemcpyToSymbolAsync(const void* symbol, const void* from, std::size_t bytes,
                                 std::size_t offset, CopyKind kind, CUstream stream) {
  return call(
      [&] { return copy_async(part_of(symbol, offset, bytes), from, bytes, kind, stream); });
}

CUDA_API cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                   std::size_t offset, CopyKind kind, CUstream stream) {
  return call([&] { return copy_async(to, part_of(symbol, offset, bytes), bytes, kind, stream); });
}

CUDA_API cudaMemset(void* to, int value, std::size_t bytes) {
  return call([&] {
    return bytes ? cuMemsetD8_v2(address_of(to), static_cast<u8>(value), bytes) : CUDA_SUCCESS;
  });
}

CUDA_API cudaMemsetAsync(void* to, int value, std::size_t bytes, CUstream stream) {
  return call([&] {
    return bytes ? cuMemsetD8Async(address_of(to), static_cast<u8>(value), bytes, stream)
                 : CUDA_SUCCESS;
  });
}

CUDA_API cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width,
                      std::size_t height) {
  return call([&] {
    return cuMemsetD2D8_v2(address_of(to), pitch, static_cast<u8>(value), width, height);
  });
}

CUDA_API cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                           std::size_t height, CUstream stream) {
  return call([&] {
    return cuMemsetD2D8Async(address_of(to), pitch, static_cast<u8>(value), width, height, stream);
  });
}

CUDA_API cudaMemset3DAsync(PitchedPointer to, int value, Extent extent, CUstream stream) {
  return call([&] {
    const std::size_t slice = to.pitch * to.rows;
    for (std::size_t z = 0; z < extent.depth; ++z) {
      must(cuMemsetD2D8Async(address_of(to.pointer) + z * slice, to.pitch, static_cast<u8>(value),
                             extent.width, extent.height, stream));
    }
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaMemset3D(PitchedPointer to, int value, Extent extent) {
  return cudaMemset3DAsync(to, value, extent, nullptr);
}

PER_THREAD(cudaMemcpy, _ptds, (void* to, const void* from, std::size_t bytes, CopyKind kind),
           (to, from, bytes, kind))
PER_THREAD(cudaMemcpyAsync, _ptsz,
           (void* to, const void* from, std::size_t bytes, CopyKind kind, CUstream stream),
           (to, from, bytes, kind, stream))
PER_THREAD(cudaMemcpy2D, _ptds,
           (void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
            std::size_t width, std::size_t height, CopyKind kind),
           (to, to_pitch, from, from_pitch, width, height, kind))
PER_THREAD(cudaMemcpy2DAsync, _ptsz,
           (void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
            std::size_t width, std::size_t height, CopyKind kind, CUstream stream),
           (to, to_pitch, from, from_pitch, width, height, kind, stream))
PER_THREAD(cudaMemcpy3D, _ptds, (const Copy3D* given), (given))
PER_THREAD(cudaMemcpy3DAsync, _ptsz, (const Copy3D* given, CUstream stream), (given, stream))
PER_THREAD(cudaMemcpyToSymbol, _ptds,
           (const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
            CopyKind kind),
           (symbol, from, bytes, offset, kind))
PER_THREAD(cudaMemcpyFromSymbol, _ptds,
           (void* to, const void* symbol, std::size_t bytes, std::size_t offset, CopyKind kind),
           (to, symbol, bytes, offset, kind))
PER_THREAD(cudaMemcpyToSymbolAsync, _ptsz,
           (const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
            CopyKind kind, CUstream stream),
           (symbol, from, bytes, offset, kind, stream))
PER_THREAD(cudaMemcpyFromSymbolAsync, _ptsz,
           (void* to, const void* symbol, std::size_t bytes, std::size_t offset, CopyKind kind,
            CUstream stream),
           (to, symbol, bytes, offset, kind, stream))
PER_THREAD(cudaMemset, _ptds, (void* to, int value, std::size_t bytes), (to, value, bytes))
PER_THREAD(cudaMemsetAsync, _ptsz, (void* to, int value, std::size_t bytes, CUstream stream),
           (to, value, bytes, stream))
PER_THREAD(cudaMemset2D, _ptds,
           (void* to, std::size_t pitch, int value, std::size_t width, std::size_t height),
           (to, pitch, value, width, height))
PER_THREAD(cudaMemset2DAsync, _ptsz,
           (void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
            CUstream stream),
           (to, pitch, value, width, height, stream))
PER_THREAD(cudaMemset3D, _ptds, (PitchedPointer to, int value, Extent extent), (to, value, extent))
PER_THREAD(cudaMemset3DAsync, _ptsz, (PitchedPointer to, int value, Extent extent, CUstream stream),
           (to, value, extent, stream))
