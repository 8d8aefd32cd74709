// Reductions of elements.
#include <cstring>

#include "../elements.hpp"
#include "nccl.hpp"

namespace workbench::nccl {
namespace {

using host::Bfloat;
using host::Half;

constexpr const char* kNames[kTypes] = {"int8",    "uint8",    "int32",       "uint32",
                                        "int64",   "uint64",   "float16",     "float32",
                                        "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
constexpr std::size_t kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr const char* kOperatorNames[kOperators] = {"sum", "product", "maximum", "minimum",
                                                    "average"};

template <class Body>
auto with_element(int type, Body&& body) {
  switch (type) {
    case kInt8: return body(std::int8_t{});
    case kUint8: return body(std::uint8_t{});
    case kInt32: return body(std::int32_t{});
    case kUint32: return body(u32{});
    case kInt64: return body(std::int64_t{});
    case kUint64: return body(u64{});
    case kHalf: return body(Half{});
    case kFloat: return body(float{});
    case kDouble: return body(double{});
    case kBfloat: return body(Bfloat{});
    default:
      throw Failed{kInvalidArgument,
                   std::string("arithmetic of ") + name_of(type) + ": convert to bfloat16 first",
                   true};
  }
}

template <class T>
constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;
template <class T>
using Wide = std::conditional_t<is_narrow<T>, float, T>;

template <class T>
Wide<T> wide(T value) {
  if constexpr (is_narrow<T>)
    return ptx::to_f32(value);
  else
    return value;
}

template <class T>
T narrow(Wide<T> value) {
  if constexpr (is_narrow<T>)
    return host::converted<T>(value);
  else
    return value;
}

// Integers wrap around.
template <class T>
T combined(int operation, T a, T b) {
  if (operation == kMaximum) return std::max(a, b);
  if (operation == kMinimum) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    const u64 x = static_cast<u64>(a), y = static_cast<u64>(b);
    return static_cast<T>(operation == kProduct ? x * y : x + y);
  } else {
    return operation == kProduct ? a * b : a + b;
  }
}

}  // namespace

std::size_t bytes_of(int type) {
  if (type >= 0 && type < kTypes) return kBytes[type];
  throw Failed{kInvalidArgument, "no data type has the number " + std::to_string(type)};
}

const char* name_of(int type) {
  bytes_of(type);
  return kNames[type];
}

const char* name_of_operator(int operation) {
  return operation < kOperators ? kOperatorNames[operation] : "sum of multiples";
}

void reduce(int type, int operation, const std::vector<const void*>& parts, u64 count, void* out) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    const auto at = [](const void* part, u64 i) {
      T value;
      std::memcpy(&value, static_cast<const char*>(part) + i * sizeof(T), sizeof(T));
      return wide(value);
    };
    const auto ranks = static_cast<Wide<T>>(parts.size());
    for (u64 i = 0; i < count; ++i) {
      Wide<T> sum = at(parts[0], i);
      for (std::size_t rank = 1; rank < parts.size(); ++rank)
        sum = combined(operation, sum, at(parts[rank], i));
      if (operation == kAverage) sum = static_cast<Wide<T>>(sum / ranks);
      const T result = narrow<T>(sum);
      std::memcpy(static_cast<char*>(out) + i * sizeof(T), &result, sizeof(T));
    }
  });
}

void scale(int type, double factor, u64 count, void* elements) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    for (u64 i = 0; i < count; ++i) {
      T value;
      char* const at = static_cast<char*>(elements) + i * sizeof(T);
      std::memcpy(&value, at, sizeof(T));
      value = narrow<T>(static_cast<Wide<T>>(wide(value) * static_cast<Wide<T>>(factor)));
      std::memcpy(at, &value, sizeof(T));
    }
  });
}

double number_at(int type, const void* address) {
  return with_element(type, [&](auto element) {
    std::memcpy(&element, address, sizeof element);
    return static_cast<double>(wide(element));
  });
}

}  // namespace workbench::nccl
