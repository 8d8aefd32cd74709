#include "products.hpp"

namespace workbench::host {
namespace {

// Kinds of cublasComputeType_t; the types of one kind differ only in a GPU's speed.
enum Kind { kHalves, kFloats, kDoubles, kIntegers, kUnknown };

Kind kind_of(int compute) {
  switch (compute) {
    case 64:
    case 65: return kHalves;
    case 68:
    case 69:
    case 74:
    case 75:
    case 77:
    case 78: return kFloats;
    case 70:
    case 71:
    case 79: return kDoubles;
    case 72:
    case 73: return kIntegers;
    default: return kUnknown;
  }
}

const char* name_of(int type) {
  switch (type) {
    case kFloat: return "float32";
    case kDouble: return "float64";
    case kHalf: return "float16";
    case kBfloat: return "bfloat16";
    case kComplex: return "complex64";
    case kDoubleComplex: return "complex128";
    case kInt8: return "int8";
    case kInt32: return "int32";
    case 28: return "float8 e4m3";
    case 29: return "float8 e5m2";
    default: return "another type";
  }
}

}  // namespace

std::size_t bytes_of(int type) {
  return with_type(type, "a matrix", 0, [](auto element) { return sizeof element; });
}

Computed computed_in(int compute, int type_a, int type_b, int type_c, int refused) {
  const Kind kind = kind_of(compute);
  if (type_a == type_b) {
    const bool same = type_c == type_a;
    switch (type_a) {
      case kHalf:
        if (kind == kHalves && same) return {kFloat, kHalf};
        if (kind == kFloats && (same || type_c == kFloat)) return {kFloat, kFloat};
        break;
      case kBfloat:
        if (kind == kFloats && (same || type_c == kFloat)) return {kFloat, kFloat};
        break;
      case kFloat:
        if (kind == kFloats && same) return {kFloat, kFloat};
        break;
      case kComplex:
        if (kind == kFloats && same) return {kComplex, kComplex};
        break;
      case kDouble:
        if (kind == kDoubles && same) return {kDouble, kDouble};
        break;
      case kDoubleComplex:
        if (kind == kDoubles && same) return {kDoubleComplex, kDoubleComplex};
        break;
      case kInt8:  // whole numbers are exact in doubles
        if (kind == kIntegers && type_c == kInt32) return {kDouble, kInt32};
        if (kind == kFloats && type_c == kFloat) return {kDouble, kFloat};
        break;
      default: break;
    }
  }
  throw Failed{refused, std::string("A of ") + name_of(type_a) + ", B of " + name_of(type_b) +
                            " and C of " + name_of(type_c) + " in compute type " +
                            std::to_string(compute) +
                            "; there are float16 and bfloat16 to the same or float32, float32, "
                            "float64 and the complex ones to the same, int8 to int32 or float32"};
}

}  // namespace workbench::host
