// Allocations: linear, pitched, managed, page-locked, and from pools.
#include "runtime.hpp"

using namespace workbench::runtime;

namespace {

constexpr unsigned kRowUnit = 4;

CUdeviceptr* as_address(void** pointer) {
  return reinterpret_cast<CUdeviceptr*>(&needed(pointer, "devPtr"));
}

}  // namespace

// For the runtime 0 bytes are not an error; the address is null.
CUDA_API cudaMalloc(void** pointer, std::size_t bytes) {
  return call([&] {
    CUdeviceptr* const address = as_address(pointer);
    *address = 0;
    return bytes ? cuMemAlloc_v2(address, bytes) : CUDA_SUCCESS;
  });
}

CUDA_API cudaFree(void* pointer) {
  return freeing([&] { return cuMemFree_v2(address_of(pointer)); });
}

CUDA_API cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width,
                         std::size_t height) {
  return call([&] {
    CUdeviceptr* const address = as_address(pointer);
    *address = 0;
    needed(pitch, "pitch") = 0;
    return width && height ? cuMemAllocPitch_v2(address, pitch, width, height, kRowUnit)
                           : CUDA_SUCCESS;
  });
}

CUDA_API cudaMalloc3D(PitchedPointer* out, Extent extent) {
  return call([&]() -> CUresult {
    PitchedPointer& made = needed(out, "pitchedDevPtr");
    made = {nullptr, 0, extent.width, extent.height};
    if (!extent.width || !extent.height || !extent.depth) return CUDA_SUCCESS;
    if (extent.height > ~std::size_t{0} / extent.depth)
      throw Failed{CUDA_ERROR_OUT_OF_MEMORY, "more rows than there are addresses"};
    return cuMemAllocPitch_v2(as_address(&made.pointer), &made.pitch, extent.width,
                              extent.height * extent.depth, kRowUnit);
  });
}

CUDA_API cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  return call([&] { return cuMemAllocManaged(as_address(pointer), bytes, flags); });
}

CUDA_API cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return call([&] {
    needed(pointer, "pHost") = nullptr;
    return bytes ? cuMemHostAlloc(pointer, bytes, flags) : CUDA_SUCCESS;
  });
}

CUDA_API cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, 0);
}

CUDA_API cudaFreeHost(void* pointer) {
  return freeing([&] { return pointer ? cuMemFreeHost(pointer) : CUDA_SUCCESS; });
}

CUDA_API cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostRegister_v2(pointer, bytes, flags); });
}

CUDA_API cudaHostUnregister(void* pointer) {
  return freeing([&] { return cuMemHostUnregister(pointer); });
}

CUDA_API cudaHostGetDevicePointer(void** pointer, void* host, unsigned flags) {
  return call([&] { return cuMemHostGetDevicePointer_v2(as_address(pointer), host, flags); });
}

CUDA_API cudaHostGetFlags(unsigned* flags, void* pointer) {
  return call([&] { return cuMemHostGetFlags(flags, pointer); });
}
CUDA_API cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&] { return cuMemGetInfo_v2(free, total); });
}

CUDA_API cudaPointerGetAttributes(PointerAttributes* out, const void* pointer) {
  return call([&] {
    PointerAttributes& made = needed(out, "attributes");
    unsigned kind = 0;
    int device = CU_DEVICE_INVALID;
    u8 managed = 0;
    void *on_device = nullptr, *on_host = nullptr;
    const int which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                         CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                         CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&kind, &device, &managed, &on_device, &on_host};
    must(cuPointerGetAttributes(5, which, values, address_of(pointer)));
    made = {};
    made.type = managed                        ? kManagedMemory
                : kind == CU_MEMORYTYPE_DEVICE ? kDeviceMemory
                : kind == CU_MEMORYTYPE_HOST   ? kHostMemory
                                               : kUnregistered;
    made.device = device;
    made.devicePointer = on_device;
    made.hostPointer = made.type == kUnregistered ? const_cast<void*>(pointer) : on_host;
    return CUDA_SUCCESS;
  });
}

CUDA_API cudaMemPrefetchAsync(const void* pointer, std::size_t bytes, CUmemLocation location,
                              unsigned flags, CUstream stream) {
  return call(
      [&] { return cuMemPrefetchAsync_v2(address_of(pointer), bytes, location, flags, stream); });
}

CUDA_API cudaMemAdvise(const void* pointer, std::size_t bytes, int advice, CUmemLocation location) {
  return call([&] { return cuMemAdvise_v2(address_of(pointer), bytes, advice, location); });
}

CUDA_API cudaMemRangeGetAttribute(void* data, std::size_t size, int which, const void* pointer,
                                  std::size_t bytes) {
  return call(
      [&] { return cuMemRangeGetAttribute(data, size, which, address_of(pointer), bytes); });
}

CUDA_API cudaMemRangeGetAttributes(void** data, std::size_t* sizes, const int* which,
                                   std::size_t count, const void* pointer, std::size_t bytes) {
  return call([&] {
    return cuMemRangeGetAttributes(data, sizes, which, count, address_of(pointer), bytes);
  });
}

namespace {

const CUdeviceptr* addresses_of(const void* const* pointers) {
  return reinterpret_cast<const CUdeviceptr*>(pointers);
}

}  // namespace

CUDA_API cudaMemPrefetchBatchAsync(void** pointers, std::size_t* sizes, std::size_t count,
                                   CUmemLocation* where, std::size_t* which, std::size_t places,
                                   unsigned long long flags, CUstream stream) {
  return call([&] {
    return cuMemPrefetchBatchAsync(addresses_of(pointers), sizes, count, where, which, places,
                                   flags, stream);
  });
}

// Discarded memory is not read again, so its content may stay.
CUDA_API cudaMemDiscardBatchAsync(void** pointers, std::size_t* sizes, std::size_t count,
                                  unsigned long long flags, CUstream stream) {
  return cudaMemPrefetchBatchAsync(pointers, sizes, count, nullptr, nullptr, 0, flags, stream);
}

CUDA_API cudaMemDiscardAndPrefetchBatchAsync(void** pointers, std::size_t* sizes, std::size_t count,
                                             CUmemLocation* where, std::size_t* which,
                                             std::size_t places, unsigned long long flags,
                                             CUstream stream) {
  return cudaMemPrefetchBatchAsync(pointers, sizes, count, where, which, places, flags, stream);
}

CUDA_API cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* sizes,
                              std::size_t count, const void* attributes, const std::size_t* which,
                              std::size_t attribute_count, CUstream stream) {
  return call([&] {
    return cuMemcpyBatchAsync_v2(addresses_of(to), addresses_of(from), sizes, count, attributes,
                                 which, attribute_count, stream);
  });
}

CUDA_API cudaMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  return call([&] { return cuMemSetMemPool(location, type, pool); });
}

// cudaChannelFormatDesc, which only holds numbers.
struct ChannelFormat {
  int x, y, z, w, kind;
};

extern "C" __attribute__((visibility("default"))) ChannelFormat cudaCreateChannelDesc(int x, int y,
                                                                                      int z, int w,
                                                                                      int kind) {
  return {x, y, z, w, kind};
}

// ---- pools ----

CUDA_API cudaMallocAsync(void** pointer, std::size_t bytes, CUstream stream) {
  return call([&] {
    CUdeviceptr* const address = as_address(pointer);
    *address = 0;
    return bytes ? cuMemAllocAsync(address, bytes, stream) : CUDA_SUCCESS;
  });
}

CUDA_API cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return call([&] { return cuMemAllocFromPoolAsync(as_address(pointer), bytes, pool, stream); });
}

CUDA_API cudaFreeAsync(void* pointer, CUstream stream) {
  return freeing([&] { return cuMemFreeAsync(address_of(pointer), stream); });
}

CUDA_API cudaDeviceGetDefaultMemPool(CUmemoryPool* pool, int device) {
  return call([&] { return cuDeviceGetDefaultMemPool(pool, device); });
}
CUDA_API cudaDeviceGetMemPool(CUmemoryPool* pool, int device) {
  return call([&] { return cuDeviceGetMemPool(pool, device); });
}
CUDA_API cudaDeviceSetMemPool(int device, CUmemoryPool pool) {
  return call([&] { return cuDeviceSetMemPool(device, pool); });
}
CUDA_API cudaMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  return call([&] { return cuMemPoolCreate(pool, props); });
}
CUDA_API cudaMemPoolDestroy(CUmemoryPool pool) {
  return freeing([&] { return cuMemPoolDestroy(pool); });
}
CUDA_API cudaMemPoolTrimTo(CUmemoryPool pool, std::size_t bytes) {
  return call([&] { return cuMemPoolTrimTo(pool, bytes); });
}

CUDA_API cudaMemPoolGetAttribute(CUmemoryPool pool, int which, void* value) {
  return call([&] { return cuMemPoolGetAttribute(pool, which, value); });
}

CUDA_API cudaMemPoolSetAttribute(CUmemoryPool pool, int which, void* value) {
  return call([&] { return cuMemPoolSetAttribute(pool, which, value); });
}

CUDA_API cudaMemPoolGetAccess(int* flags, CUmemoryPool pool, CUmemLocation* location) {
  return call([&] { return cuMemPoolGetAccess(flags, pool, location); });
}

CUDA_API cudaMemPoolSetAccess(CUmemoryPool pool, const void* accesses, std::size_t count) {
  return call([&] { return cuMemPoolSetAccess(pool, accesses, count); });
}

CUDA_API cudaMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  return call([&] { return cuMemGetDefaultMemPool(pool, location, type); });
}

CUDA_API cudaMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  return call([&] { return cuMemGetMemPool(pool, location, type); });
}

PER_THREAD(cudaMemPrefetchAsync, _ptsz,
           (const void* pointer, std::size_t bytes, CUmemLocation location, unsigned flags,
            CUstream stream),
           (pointer, bytes, location, flags, stream))
PER_THREAD(cudaMallocAsync, _ptsz, (void** pointer, std::size_t bytes, CUstream stream),
           (pointer, bytes, stream))
PER_THREAD(cudaMallocFromPoolAsync, _ptsz,
           (void** pointer, std::size_t bytes, CUmemoryPool pool, CUstream stream),
           (pointer, bytes, pool, stream))
PER_THREAD(cudaFreeAsync, _ptsz, (void* pointer, CUstream stream), (pointer, stream))
PER_THREAD(cudaMemPrefetchBatchAsync, _ptsz,
           (void** pointers, std::size_t* sizes, std::size_t count, CUmemLocation* where,
            std::size_t* which, std::size_t places, unsigned long long flags, CUstream stream),
           (pointers, sizes, count, where, which, places, flags, stream))
PER_THREAD(cudaMemDiscardBatchAsync, _ptsz,
           (void** pointers, std::size_t* sizes, std::size_t count, unsigned long long flags,
            CUstream stream),
           (pointers, sizes, count, flags, stream))
PER_THREAD(cudaMemDiscardAndPrefetchBatchAsync, _ptsz,
           (void** pointers, std::size_t* sizes, std::size_t count, CUmemLocation* where,
            std::size_t* which, std::size_t places, unsigned long long flags, CUstream stream),
           (pointers, sizes, count, where, which, places, flags, stream))
PER_THREAD(cudaMemcpyBatchAsync, _ptsz,
           (void* const* to, const void* const* from, const std::size_t* sizes, std::size_t count,
            const void* attributes, const std::size_t* which, std::size_t attribute_count,
            CUstream stream),
           (to, from, sizes, count, attributes, which, attribute_count, stream))
