// Handles and descriptors: created, set and read by the numbers of their attributes.
#include <cstddef>
#include <cstring>
#include <memory>

#include "lt.hpp"

using namespace workbench::host;

namespace {

struct Attribute {
  int number;
  std::size_t offset, bytes;
};
#define ATTRIBUTE(number, Type, member) \
  Attribute { number, offsetof(Type, member), sizeof(Type::member) }

constexpr Attribute kLayout[] = {
    ATTRIBUTE(0, Layout, type),         ATTRIBUTE(1, Layout, order),
    ATTRIBUTE(2, Layout, rows),         ATTRIBUTE(3, Layout, columns),
    ATTRIBUTE(4, Layout, stride),       ATTRIBUTE(5, Layout, batch_count),
    ATTRIBUTE(6, Layout, batch_stride), ATTRIBUTE(7, Layout, plane),
    ATTRIBUTE(8, Layout, batch_mode),
};
constexpr Attribute kMatmul[] = {
    ATTRIBUTE(0, MatmulDesc, compute),
    ATTRIBUTE(1, MatmulDesc, scale),
    ATTRIBUTE(2, MatmulDesc, pointer_mode),
    ATTRIBUTE(3, MatmulDesc, op_a),
    ATTRIBUTE(4, MatmulDesc, op_b),
    ATTRIBUTE(5, MatmulDesc, op_c),
    ATTRIBUTE(6, MatmulDesc, fill),
    ATTRIBUTE(7, MatmulDesc, epilogue),
    ATTRIBUTE(8, MatmulDesc, bias),
    ATTRIBUTE(10, MatmulDesc, bias_stride),
    ATTRIBUTE(11, MatmulDesc, aux),
    ATTRIBUTE(12, MatmulDesc, aux_stride),
    ATTRIBUTE(13, MatmulDesc, aux_batch_stride),
    ATTRIBUTE(14, MatmulDesc, alpha_stride),
    ATTRIBUTE(15, MatmulDesc, multiprocessors),
    ATTRIBUTE(17, MatmulDesc, scales[0]),
    ATTRIBUTE(18, MatmulDesc, scales[1]),
    ATTRIBUTE(19, MatmulDesc, scales[2]),
    ATTRIBUTE(20, MatmulDesc, scales[3]),
    ATTRIBUTE(21, MatmulDesc, amax),
    ATTRIBUTE(22, MatmulDesc, aux_type),
    ATTRIBUTE(23, MatmulDesc, aux_scale),
    ATTRIBUTE(24, MatmulDesc, aux_amax),
    ATTRIBUTE(25, MatmulDesc, fast_accumulation),
    ATTRIBUTE(26, MatmulDesc, bias_type),
    ATTRIBUTE(31, MatmulDesc, scale_modes[0]),
    ATTRIBUTE(32, MatmulDesc, scale_modes[1]),
    ATTRIBUTE(33, MatmulDesc, scale_modes[2]),
    ATTRIBUTE(34, MatmulDesc, scale_modes[3]),
    ATTRIBUTE(35, MatmulDesc, scale_modes[4]),
    ATTRIBUTE(36, MatmulDesc, out_scale),
    ATTRIBUTE(37, MatmulDesc, out_scale_mode),
    ATTRIBUTE(38, MatmulDesc, emulation),
};
constexpr Attribute kPreference[] = {
    ATTRIBUTE(0, Preference, search),           ATTRIBUTE(1, Preference, workspace),
    ATTRIBUTE(3, Preference, reductions),       ATTRIBUTE(5, Preference, alignment[0]),
    ATTRIBUTE(6, Preference, alignment[1]),     ATTRIBUTE(7, Preference, alignment[2]),
    ATTRIBUTE(8, Preference, alignment[3]),     ATTRIBUTE(9, Preference, waves),
    ATTRIBUTE(12, Preference, implementations),
};
constexpr Attribute kTransform[] = {
    ATTRIBUTE(0, TransformDesc, scale),
    ATTRIBUTE(1, TransformDesc, pointer_mode),
    ATTRIBUTE(2, TransformDesc, op_a),
    ATTRIBUTE(3, TransformDesc, op_b),
};

template <std::size_t N>
const Attribute& attribute(const Attribute (&table)[N], int number) {
  for (const Attribute& one : table)
    if (one.number == number) return one;
  throw Failed{kNotSupported, "the attribute " + std::to_string(number) + " is not known here"};
}

template <std::size_t N>
int set(const char* name, const Attribute (&table)[N], void* desc, int number, const void* value,
        std::size_t bytes) {
  return call(name, [&] {
    const Attribute& known = attribute(table, number);
    need_address(desc, "the descriptor's address");
    need_address(value, "buf");
    if (bytes != known.bytes)
      throw Failed{kInvalidValue, "sizeInBytes is " + std::to_string(bytes) +
                                      ", the attribute has " + std::to_string(known.bytes)};
    std::memcpy(static_cast<char*>(desc) + known.offset, value, bytes);
  });
}

template <std::size_t N>
int get(const char* name, const Attribute (&table)[N], const void* desc, int number, void* value,
        std::size_t bytes, std::size_t* written) {
  return call(name, [&] {
    const Attribute& known = attribute(table, number);
    need_address(desc, "the descriptor's address");
    if (bytes == 0) {
      needed(written, "sizeWritten") = known.bytes;
      return;
    }
    need_address(value, "buf");
    if (bytes < known.bytes)
      throw Failed{kInvalidValue, "sizeInBytes is " + std::to_string(bytes) +
                                      ", the attribute has " + std::to_string(known.bytes)};
    std::memcpy(value, static_cast<const char*>(desc) + known.offset, known.bytes);
    if (written) *written = known.bytes;
  });
}

// Creates a descriptor in the program's memory, or in memory of this library.
template <class Desc>
int init(const char* name, void* memory, std::size_t bytes, const Desc& value) {
  return call(name, [&] {
    need_address(memory, "the descriptor's address");
    if (bytes < sizeof(Desc)) throw Failed{kInvalidValue, "the descriptor is larger"};
    std::memcpy(memory, &value, sizeof value);
  });
}

constexpr std::size_t kLargest = 256;

template <class Desc>
int create(const char* name, void** out, const Desc& value) {
  return call(name, [&] {
    void*& desc = needed(out, "the descriptor's address");
    auto memory = std::make_unique<char[]>(kLargest);
    std::memcpy(memory.get(), &value, sizeof value);
    desc = memory.release();
  });
}

int destroy(void* desc) {
  delete[] static_cast<char*>(desc);
  return kSuccess;
}

Layout layout(int type, std::uint64_t rows, std::uint64_t columns, i64 stride) {
  return {static_cast<std::uint32_t>(type), kColumns, rows, columns, stride, 1, 0, 0, 0};
}

MatmulDesc matmul(int compute, int scale) {
  MatmulDesc made{};
  made.compute = compute;
  made.scale = scale;
  made.fill = 2;  // the whole matrix
  made.epilogue = 1;
  made.aux_type = -1;
  made.bias_type = -1;
  return made;
}

Preference preference() {
  Preference made{};
  made.reductions = ~0u;
  made.implementations = ~u64{0};
  std::fill(std::begin(made.alignment), std::end(made.alignment), 256u);
  return made;
}

}  // namespace

LT_API cublasLtMatrixLayoutCreate(void** out, int type, std::uint64_t rows, std::uint64_t columns,
                                  i64 stride) {
  return create("cublasLtMatrixLayoutCreate", out, layout(type, rows, columns, stride));
}
LT_API cublasLtMatrixLayoutInit_internal(void* memory, std::size_t bytes, int type,
                                         std::uint64_t rows, std::uint64_t columns, i64 stride) {
  return init("cublasLtMatrixLayoutInit", memory, bytes, layout(type, rows, columns, stride));
}
LT_API cublasLtMatmulDescCreate(void** out, int compute, int scale) {
  return create("cublasLtMatmulDescCreate", out, matmul(compute, scale));
}
LT_API cublasLtMatmulDescInit_internal(void* memory, std::size_t bytes, int compute, int scale) {
  return init("cublasLtMatmulDescInit", memory, bytes, matmul(compute, scale));
}
LT_API cublasLtMatmulPreferenceCreate(void** out) {
  return create("cublasLtMatmulPreferenceCreate", out, preference());
}
LT_API cublasLtMatmulPreferenceInit_internal(void* memory, std::size_t bytes) {
  return init("cublasLtMatmulPreferenceInit", memory, bytes, preference());
}
LT_API cublasLtMatrixTransformDescCreate(void** out, int scale) {
  return create("cublasLtMatrixTransformDescCreate", out, TransformDesc{scale, 0, 0, 0});
}
LT_API cublasLtMatrixTransformDescInit_internal(void* memory, std::size_t bytes, int scale) {
  return init("cublasLtMatrixTransformDescInit", memory, bytes, TransformDesc{scale, 0, 0, 0});
}

#define ACCESS(Desc, table)                                                                  \
  LT_API cublasLt##Desc##SetAttribute(void* desc, int number, const void* value,             \
                                      std::size_t bytes) {                                   \
    return set("cublasLt" #Desc "SetAttribute", table, desc, number, value, bytes);          \
  }                                                                                          \
  LT_API cublasLt##Desc##GetAttribute(const void* desc, int number, void* value,             \
                                      std::size_t bytes, std::size_t* written) {             \
    return get("cublasLt" #Desc "GetAttribute", table, desc, number, value, bytes, written); \
  }                                                                                          \
  LT_API cublasLt##Desc##Destroy(void* desc) { return destroy(desc); }
ACCESS(MatrixLayout, kLayout)
ACCESS(MatmulDesc, kMatmul)
ACCESS(MatmulPreference, kPreference)
ACCESS(MatrixTransformDesc, kTransform)

// ---- the library ----

// A handle has no state, and a handle of cuBLAS may be passed instead.
LT_API cublasLtCreate(void** out) {
  return call("cublasLtCreate", [&] {
    void*& handle = needed(out, "handle");
    if (const std::string missing = blas_missing(); !missing.empty())
      throw Failed{kNotInitialized, missing, true};
    if (need_context()) throw Failed{kNotInitialized, "the device has no context"};
    handle = std::make_unique<char[]>(1).release();
  });
}
LT_API cublasLtDestroy(void* handle) { return destroy(handle); }
LT_API cublasLtGetProperty(int which, int* value) {
  return call("cublasLtGetProperty", [&] {
    const int parts[] = {kBlasVersion / 10000, kBlasVersion / 100 % 100, kBlasVersion % 100};
    if (which < 0 || which > 2) throw Failed{kInvalidValue, "the property is 0, 1 or 2"};
    needed(value, "value") = parts[which];
  });
}
extern "C" {
__attribute__((visibility("default"))) std::size_t cublasLtGetVersion() { return kBlasVersion; }
__attribute__((visibility("default"))) std::size_t cublasLtGetCudartVersion() {
  return kRuntimeVersion;
}
__attribute__((visibility("default"))) const char* cublasLtGetStatusName(int status) {
  return name_of_status(status);
}
__attribute__((visibility("default"))) const char* cublasLtGetStatusString(int status) {
  return words_of_status(status);
}
}

// The log stays empty (workbench run lists the calls), and no heuristics are cached.
LT_API cublasLtLoggerSetCallback(void*) { return kSuccess; }
LT_API cublasLtLoggerSetFile(void*) { return kSuccess; }
LT_API cublasLtLoggerOpenFile(const char*) { return kSuccess; }
LT_API cublasLtLoggerSetLevel(int) { return kSuccess; }
LT_API cublasLtLoggerSetMask(int) { return kSuccess; }
LT_API cublasLtLoggerForceDisable() { return kSuccess; }
LT_API cublasLtHeuristicsCacheGetCapacity(std::size_t* capacity) {
  return call(__func__, [&] { needed(capacity, "capacity") = 0; });
}
LT_API cublasLtHeuristicsCacheSetCapacity(std::size_t) { return kSuccess; }
