// Multi-word integer arithmetic: add, sub and mad that set (.cc) and use (addc, subc, madc) the
// carry flag.
//
// The flag is a predicate that the decoder adds to every kernel that uses it. For sub it is the
// carry of a + ~b + 1, as on GPUs: set if nothing was borrowed. The PTX manual calls it a borrow;
// the difference only shows where an addc follows a sub.cc, or a subc an add.cc, as in the
// compiler's 128-bit divisions.
#include "arithmetic/elementwise.hpp"
#include "memory/cluster.hpp"

namespace workbench::ptx {
namespace {

template <class T>
struct Sum {
  T value;
  bool carry;
};

template <class T>
inline Sum<T> add(T a, T b, T, bool carry) {
  const T partial = static_cast<T>(a + b), value = static_cast<T>(partial + carry);
  return {value, partial < a || value < partial};
}

template <class T>
inline Sum<T> subtract(T a, T b, T, bool carry) {
  return add<T>(a, static_cast<T>(~b), 0, carry);
}

template <class T>
inline Sum<T> mad_low(T a, T b, T c, bool carry) {
  return add<T>(static_cast<T>(a * b), c, 0, carry);
}

// S: the type of the product's factors, signed or unsigned.
template <class S, class T>
inline Sum<T> mad_high(T a, T b, T c, bool carry) {
  using Wide = std::conditional_t<sizeof(T) == 4, s64, __int128>;
  using Unsigned = std::conditional_t<sizeof(T) == 4, u64, unsigned __int128>;
  using Product = std::conditional_t<std::is_signed_v<S>, Wide, Unsigned>;
  const Product product =
      static_cast<Product>(static_cast<S>(a)) * static_cast<Product>(static_cast<S>(b));
  return add<T>(static_cast<T>(product >> (8 * sizeof(T))), c, 0, carry);
}

// First: the incoming flag of an instruction that uses none.
template <class T, Sum<T> (*F)(T, T, T, bool), bool First = false>
void run(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const T* a = at<const T>(registers, in.carrying.a);
  const T* b = at<const T>(registers, in.carrying.b);
  const T* c = at<const T>(registers, in.carrying.c == kNoSlot ? in.carrying.a : in.carrying.c);
  const u32 first = First ? ~0u : 0u;
  const u32 before =
      in.carrying.carry_in == kNoSlot ? first : *at<u32>(registers, in.carrying.carry_in);
  alignas(64) T out[kLanes];
  u32 after = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Sum<T> sum = F(a[lane], b[lane], c[lane], before >> lane & 1);
    out[lane] = sum.value;
    after |= (sum.carry ? 1u : 0u) << lane;
  }
  write_lanes(registers, in.carrying.destination, mask, out);
  if (in.carrying.carry_out != kNoSlot)
    set_predicate(registers, in.carrying.carry_out, mask, after);
}

template <class T>
void add_width(Table& table, const std::string& bits) {
  const auto add_one = [&](const std::string& name, Handler handler, int operands) {
    const std::string width = "b" + bits;
    table.push_back({name, handler, Kind::plain, Class::integer, width,
                     width + "," + width + (operands == 3 ? "," + width : "")});
  };
  using Signed = std::make_signed_t<T>;
  add_one("carry.add.b" + bits, &run<T, &add<T>>, 2);
  add_one("carry.sub.b" + bits, &run<T, &subtract<T>, true>, 2);
  add_one("carry.mad.lo.b" + bits, &run<T, &mad_low<T>>, 3);
  add_one("carry.mad.hi.u" + bits, &run<T, &mad_high<T, T>>, 3);
  add_one("carry.mad.hi.s" + bits, &run<T, &mad_high<Signed, T>>, 3);
}

// isspacep, on a generic address. Windows: 0 global, 1 shared, 2 local; 1 + 256: the
// block's own shared memory.
void is_space(u8* registers, const Instruction& in, u32 mask, Warp& warp) {
  const u64* address = at<const u64>(registers, in.elementwise.source[0]);
  const u64 window = static_cast<u64>(in.window) & 255;
  const bool own = (in.window >> 8) != 0;
  u32 inside = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    const bool there = address[lane] >> 56 == window &&
                       !(own && is_remote(*warp.block, address[lane] & kWindowMask));
    inside |= (there ? 1u : 0u) << lane;
  }
  set_predicate(registers, in.elementwise.destination, mask, inside);
}

}  // namespace

void add_carries(Table& table) {
  add_width<u32>(table, "32"), add_width<u64>(table, "64");
  table.push_back({"isspacep", &is_space, Kind::plain, Class::integer, "pred", "b64"});
}

}  // namespace workbench::ptx
