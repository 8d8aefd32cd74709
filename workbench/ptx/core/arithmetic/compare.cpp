// setp for every type, and set on packed halves. Ordered comparisons are false on NaN, unordered
// ones (...u) are true.
#include "arithmetic/elementwise.hpp"
#include "arithmetic/numeric.hpp"

namespace workbench::ptx {
namespace {

template <class T>
void add_equality(Table& table, const std::string& type) {
  table.push_back(compare_op("setp.eq." + type, [](T a, T b) { return a == b; }));
  table.push_back(compare_op("setp.ne." + type, [](T a, T b) { return a != b; }));
}

template <class T>
void add_order(Table& table, const std::string& type) {
  table.push_back(compare_op("setp.lt." + type, [](T a, T b) { return a < b; }));
  table.push_back(compare_op("setp.le." + type, [](T a, T b) { return a <= b; }));
  table.push_back(compare_op("setp.gt." + type, [](T a, T b) { return a > b; }));
  table.push_back(compare_op("setp.ge." + type, [](T a, T b) { return a >= b; }));
}

// The value of a 16-bit operand, or the operand itself.
inline f64 value_of(f64 x) { return x; }
inline f32 value_of(f32 x) { return x; }
inline f32 value_of(Half x) { return to_f32(x); }
inline f32 value_of(Bfloat x) { return to_f32(x); }

struct Flushed {
  u32 bits;
};
inline f32 value_of(Flushed x) { return flush(bits_as<f32>(x.bits)); }

template <class T, class Add>
void add_tests(Add add) {
  add("eq", [](T a, T b) { return value_of(a) == value_of(b); });
  add("ne", [](T a, T b) { return value_of(a) < value_of(b) || value_of(a) > value_of(b); });
  add("lt", [](T a, T b) { return value_of(a) < value_of(b); });
  add("le", [](T a, T b) { return value_of(a) <= value_of(b); });
  add("gt", [](T a, T b) { return value_of(a) > value_of(b); });
  add("ge", [](T a, T b) { return value_of(a) >= value_of(b); });
  add("equ", [](T a, T b) { return !(value_of(a) < value_of(b) || value_of(a) > value_of(b)); });
  add("neu", [](T a, T b) { return !(value_of(a) == value_of(b)); });
  add("ltu", [](T a, T b) { return !(value_of(a) >= value_of(b)); });
  add("leu", [](T a, T b) { return !(value_of(a) > value_of(b)); });
  add("gtu", [](T a, T b) { return !(value_of(a) <= value_of(b)); });
  add("geu", [](T a, T b) { return !(value_of(a) < value_of(b)); });
  add("num", [](T a, T b) { return value_of(a) == value_of(a) && value_of(b) == value_of(b); });
  add("nan", [](T a, T b) { return value_of(a) != value_of(a) || value_of(b) != value_of(b); });
}

template <class T>
void add_floating(Table& table, const std::string& type) {
  add_tests<T>([&](const char* test, auto function) {
    table.push_back(compare_op("setp." + std::string(test) + "." + type, function));
  });
}

// set: "set.gt.f16x2.f16x2" gives 1.0 or 0 in each half, "set.gt.u32.f16x2" all ones or 0.
template <class T, u16 One>
void add_set(Table& table, const std::string& type) {
  add_tests<T>([&]<class F>(const char* test, F) {
    const std::string name = "set." + std::string(test) + ".";
    table.push_back(packed_op(name + type + "x2." + type + "x2", Class::fp16,
                              [](T a, T b) -> u16 { return F{}(a, b) ? One : u16{0}; }));
    table.push_back(op(name + type + "." + type, Class::fp16,
                       [](T a, T b) -> u16 { return F{}(a, b) ? One : u16{0}; }));
    table.push_back(packed_op(name + "u32." + type + "x2", Class::fp16,
                              [](T a, T b) -> u16 { return F{}(a, b) ? u16{0xffff} : u16{0}; }));
  });
}

// testp: the class of one number. Zero counts as normal.
template <class T, class F>
void test_class(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* a = at<const T>(registers, in.elementwise.source[0]);
  alignas(64) u8 flags[kLanes];
  PTX_LANES {
    flags[lane] = F{}(a[lane]) ? 1 : 0;
  }
  set_predicate(registers, in.elementwise.destination, mask, pack_mask(flags));
}

template <class T, int ExponentBit>
void add_classes(Table& table, const std::string& type) {
  constexpr T kInfinite = ((T{1} << (8 * sizeof(T) - 1)) - (T{1} << ExponentBit)),
              kLeast = T{1} << ExponentBit;
  constexpr T kMagnitude = static_cast<T>(~T{0}) >> 1;
  const auto add = [&]<class F>(const char* name, F) {
    table.push_back({"testp." + std::string(name) + "." + type, &test_class<T, F>, Kind::plain,
                     Class::integer, "pred", sizeof(T) == 4 ? "b32" : "b64"});
  };
  add("finite", [](T x) { return (x & kMagnitude) < kInfinite; });
  add("infinite", [](T x) { return (x & kMagnitude) == kInfinite; });
  add("number", [](T x) { return (x & kMagnitude) <= kInfinite; });
  add("notanumber", [](T x) { return (x & kMagnitude) > kInfinite; });
  add("normal", [](T x) {
    return ((x & kMagnitude) < kInfinite && (x & kMagnitude) >= kLeast) || (x & kMagnitude) == 0;
  });
  add("subnormal", [](T x) { return (x & kMagnitude) != 0 && (x & kMagnitude) < kLeast; });
}

}  // namespace

void add_comparisons(Table& table) {
  add_classes<u32, 23>(table, "f32"), add_classes<u64, 52>(table, "f64");
  add_equality<u16>(table, "b16"), add_equality<u32>(table, "b32"), add_equality<u64>(table, "b64");
  add_order<s16>(table, "s16"), add_order<s32>(table, "s32"), add_order<s64>(table, "s64");
  add_order<u16>(table, "u16"), add_order<u32>(table, "u32"), add_order<u64>(table, "u64");
  add_floating<f32>(table, "f32"), add_floating<f64>(table, "f64");
  add_set<Half, 0x3c00>(table, "f16"), add_set<Bfloat, 0x3f80>(table, "bf16");
  add_floating<Half>(table, "f16"), add_floating<Bfloat>(table, "bf16"),
      add_floating<Flushed>(table, "ftz.f32");
}

}  // namespace workbench::ptx
