// Handles, their modes, the library's version and properties, and copies between host and device.
#include "../live.hpp"
#include "cublas.hpp"

using namespace workbench::host;

namespace workbench::host {

Handle& checked(Handle* handle) {
  return Live<Handle>::all().checked(handle, kNotInitialized, "handle");
}

char fill(int given) {
  if (given != 0 && given != 1)
    throw Failed{kInvalidValue, "uplo is " + std::to_string(given) +
                                    ", allowed are CUBLAS_FILL_MODE_LOWER and _UPPER"};
  return "LU"[given];
}

char diagonal(int given) {
  if (given != 0 && given != 1)
    throw Failed{kInvalidValue, "diag is " + std::to_string(given) +
                                    ", allowed are CUBLAS_DIAG_NON_UNIT and _UNIT"};
  return "NU"[given];
}

char side(int given) {
  if (given != 0 && given != 1)
    throw Failed{kInvalidValue,
                 "side is " + std::to_string(given) + ", allowed are CUBLAS_SIDE_LEFT and _RIGHT"};
  return "LR"[given];
}

}  // namespace workbench::host

extern "C" {
CUresult cuStreamSynchronize(CUstream);
int cudaMemcpy2D(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int);
int cudaMemcpy2DAsync(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int,
                      CUstream);
const char* workbench_driver_latest_error();
}

void workbench::host::await(const Handle& handle) {
  if (const CUresult result = cuStreamSynchronize(handle.stream))
    throw DriverFailed{result, workbench_driver_latest_error()};
}

CUBLAS_API cublasCreate_v2(Handle** out) {
  return call("cublasCreate", [&] {
    Handle*& handle = needed(out, "handle");
    if (const std::string missing = blas_missing(); !missing.empty())
      throw Failed{kNotInitialized, missing, true};
    if (need_context()) throw Failed{kNotInitialized, workbench_driver_latest_error()};
    handle = Live<Handle>::all().add(std::make_unique<Handle>());
  });
}

CUBLAS_API cublasDestroy_v2(Handle* handle) {
  return call("cublasDestroy", [&] {
    checked(handle);
    Live<Handle>::all().destroy(handle);
  });
}

// The setter and getter of a member of the handle, with the range of its values in cublas_api.h.
#define MODE(Set, Get, type, member, least, most)                                \
  CUBLAS_API Set(Handle* handle, type value) {                                   \
    return call(#Set, [&] {                                                      \
      Handle& own = checked(handle);                                             \
      if (value < (least) || value > (most))                                     \
        throw Failed{kInvalidValue, "the value is " + std::to_string(value) +    \
                                        ", allowed is " #least " to " #most};    \
      own.member = value;                                                        \
    });                                                                          \
  }                                                                              \
  CUBLAS_API Get(Handle* handle, type* value) {                                  \
    return call(#Get, [&] { needed(value, "value") = checked(handle).member; }); \
  }
MODE(cublasSetPointerMode_v2, cublasGetPointerMode_v2, int, pointer_mode, 0, 1)
MODE(cublasSetMathMode, cublasGetMathMode, int, math_mode, 0, 31)
MODE(cublasSetAtomicsMode, cublasGetAtomicsMode, int, atomics_mode, 0, 1)
MODE(cublasSetSmCountTarget, cublasGetSmCountTarget, int, multiprocessors, 0, 0xffff)
MODE(cublasSetEmulationStrategy, cublasGetEmulationStrategy, int, emulation_strategy, 0, 2)
MODE(cublasSetEmulationSpecialValuesSupport, cublasGetEmulationSpecialValuesSupport, int,
     emulation_special_values, 0, 0xffff)
MODE(cublasSetFixedPointEmulationMantissaControl, cublasGetFixedPointEmulationMantissaControl, int,
     mantissa_control, 0, 1)
MODE(cublasSetFixedPointEmulationMaxMantissaBitCount,
     cublasGetFixedPointEmulationMaxMantissaBitCount, int, mantissa_most_bits, 0, 0xffff)
MODE(cublasSetFixedPointEmulationMantissaBitOffset, cublasGetFixedPointEmulationMantissaBitOffset,
     int, mantissa_bit_offset, -0xffff, 0xffff)

CUBLAS_API cublasSetFixedPointEmulationMantissaBitCountPointer(Handle* handle, int* count) {
  return call(__func__, [&] { checked(handle).mantissa_bits = count; });
}
CUBLAS_API cublasGetFixedPointEmulationMantissaBitCountPointer(Handle* handle, int** count) {
  return call(__func__, [&] { needed(count, "count") = checked(handle).mantissa_bits; });
}

CUBLAS_API cublasSetStream_v2(Handle* handle, CUstream stream) {
  return call("cublasSetStream", [&] { checked(handle).stream = stream; });
}
CUBLAS_API cublasGetStream_v2(Handle* handle, CUstream* stream) {
  return call("cublasGetStream", [&] { needed(stream, "stream") = checked(handle).stream; });
}
// Nothing here needs a workspace on the device.
CUBLAS_API cublasSetWorkspace_v2(Handle* handle, void*, std::size_t) {
  return call("cublasSetWorkspace", [&] { checked(handle); });
}
CUBLAS_API cublasGetVersion_v2(Handle*, int* version) {
  return call("cublasGetVersion", [&] { needed(version, "version") = kBlasVersion; });
}
CUBLAS_API cublasGetProperty(int which, int* value) {
  return call("cublasGetProperty", [&] {
    const int parts[] = {kBlasVersion / 10000, kBlasVersion / 100 % 100, kBlasVersion % 100};
    if (which < 0 || which > 2) throw Failed{kInvalidValue, "the property is 0, 1 or 2"};
    needed(value, "value") = parts[which];
  });
}

extern "C" __attribute__((visibility("default"))) std::size_t cublasGetCudartVersion() {
  return kRuntimeVersion;
}
extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusName(int status) {
  return name_of_status(status);
}
extern "C" __attribute__((visibility("default"))) const char* cublasGetStatusString(int status) {
  return words_of_status(status);
}

// ---- the log, which stays empty: workbench run lists the calls ----

namespace {
void (*log_callback)(const char*) = nullptr;
}
CUBLAS_API cublasLoggerConfigure(int, int, int, const char*) { return kSuccess; }
CUBLAS_API cublasSetLoggerCallback(void (*callback)(const char*)) {
  log_callback = callback;
  return kSuccess;
}
CUBLAS_API cublasGetLoggerCallback(void (**callback)(const char*)) {
  return call(__func__, [&] { needed(callback, "callback") = log_callback; });
}
extern "C" __attribute__((visibility("default"))) void cublasXerbla(const char* name,
                                                                    int argument) {
  failed(name, kInvalidValue, "argument " + std::to_string(argument) + " had an illegal value");
}

// ---- copies between the host and the device ----

namespace {

enum Direction { kHostToDevice = 1, kDeviceToHost = 2 };

// Copies columns of `rows` elements; a vector has columns of one element.
int copy(const char* name, i64 rows, i64 columns, i64 element, const void* from, i64 from_stride,
         void* to, i64 to_stride, Direction direction, const CUstream* stream) {
  return call(name, [&] {
    need_sizes({{"rows", rows}, {"columns", columns}});
    at_least(element, 1, "elemSize", kInvalidValue);
    need_stride(from_stride, rows, "the source's stride");
    need_stride(to_stride, rows, "the target's stride");
    if (!rows || !columns) return;
    const auto bytes = [&](i64 count) { return static_cast<std::size_t>(count * element); };
    const int result =
        stream ? cudaMemcpy2DAsync(to, bytes(to_stride), from, bytes(from_stride), bytes(rows),
                                   static_cast<std::size_t>(columns), direction, *stream)
               : cudaMemcpy2D(to, bytes(to_stride), from, bytes(from_stride), bytes(rows),
                              static_cast<std::size_t>(columns), direction);
    if (result) throw Failed{kMappingError, workbench_driver_latest_error()};
  });
}

}  // namespace

#define COPIES(I, suffix)                                                                         \
  CUBLAS_API cublasSetVector##suffix(I n, I element, const void* x, I incx, void* y, I incy) {    \
    return copy("cublasSetVector", 1, n, element, x, incx, y, incy, kHostToDevice, nullptr);      \
  }                                                                                               \
  CUBLAS_API cublasGetVector##suffix(I n, I element, const void* x, I incx, void* y, I incy) {    \
    return copy("cublasGetVector", 1, n, element, x, incx, y, incy, kDeviceToHost, nullptr);      \
  }                                                                                               \
  CUBLAS_API cublasSetMatrix##suffix(I rows, I columns, I element, const void* a, I lda, void* b, \
                                     I ldb) {                                                     \
    return copy("cublasSetMatrix", rows, columns, element, a, lda, b, ldb, kHostToDevice,         \
                nullptr);                                                                         \
  }                                                                                               \
  CUBLAS_API cublasGetMatrix##suffix(I rows, I columns, I element, const void* a, I lda, void* b, \
                                     I ldb) {                                                     \
    return copy("cublasGetMatrix", rows, columns, element, a, lda, b, ldb, kDeviceToHost,         \
                nullptr);                                                                         \
  }                                                                                               \
  CUBLAS_API cublasSetVectorAsync##suffix(I n, I element, const void* x, I incx, void* y, I incy, \
                                          CUstream stream) {                                      \
    return copy("cublasSetVectorAsync", 1, n, element, x, incx, y, incy, kHostToDevice, &stream); \
  }                                                                                               \
  CUBLAS_API cublasGetVectorAsync##suffix(I n, I element, const void* x, I incx, void* y, I incy, \
                                          CUstream stream) {                                      \
    return copy("cublasGetVectorAsync", 1, n, element, x, incx, y, incy, kDeviceToHost, &stream); \
  }                                                                                               \
  CUBLAS_API cublasSetMatrixAsync##suffix(I rows, I columns, I element, const void* a, I lda,     \
                                          void* b, I ldb, CUstream stream) {                      \
    return copy("cublasSetMatrixAsync", rows, columns, element, a, lda, b, ldb, kHostToDevice,    \
                &stream);                                                                         \
  }                                                                                               \
  CUBLAS_API cublasGetMatrixAsync##suffix(I rows, I columns, I element, const void* a, I lda,     \
                                          void* b, I ldb, CUstream stream) {                      \
    return copy("cublasGetMatrixAsync", rows, columns, element, a, lda, b, ldb, kDeviceToHost,    \
                &stream);                                                                         \
  }
COPIES(int, )
COPIES(std::int64_t, _64)
