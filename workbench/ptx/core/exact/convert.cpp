// Conversions: between formats, which all hold the same elements; of integers, exactly; to
// integers.
#include <cstdlib>
#include <memory>

#include "exact/handlers.hpp"
#include "exact/lanes.hpp"
#include "matrices/small_float.hpp"

namespace workbench::ptx::exact {
namespace {

using Found = std::optional<Handlers>;

u16 positive_part(u16 code) {
  if (code >= kUndefined) return code;
  return tables->rank[code] < tables->rank[0] ? 0 : code;
}
u16 unit_part(u16 code) {  // .sat
  const u16 above = positive_part(code);
  return above < kUndefined && tables->rank[above] > tables->rank[kOne] ? kOne : above;
}
u16 same(u16 code) { return code; }

template <class From, class To, u16 (*Then)(u16)>
void convert(u8* registers, const Instruction& in, u32 mask, Warp&) {
  Codes codes;
  From::read(at<const typename From::Bits>(registers, in.elementwise.source[0]), codes);
  if constexpr (Then != same)
    for (u16& code : codes.at) code = Then(code);
  alignas(64) typename To::Bits out[kLanes];
  To::write(codes, out);
  write_register<To, 1>(registers, in.elementwise.destination, mask, out);
}

// Two f32 to a pair; the first source is the upper half.
template <class To, u16 (*Then)(u16)>
void convert_pair(u8* registers, const Instruction& in, u32 mask, Warp&) {
  alignas(64) u16 half[2][kLanes];
  for (int i = 0; i < 2; ++i) {
    Codes codes;
    Single::read(at<const u32>(registers, in.elementwise.source[i]), codes);
    if constexpr (Then != same)
      for (u16& code : codes.at) code = Then(code);
    To::write(codes, half[i]);
  }
  alignas(64) u32 out[kLanes];
  PTX_LANES {
    out[lane] = u32{half[0][lane]} << 16 | half[1][lane];
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

// ---- integers

u16 code_of_integer(s64 value) {
  const s64 residue = value % kModulus;
  const u64 positive = static_cast<u64>(residue < 0 ? residue + kModulus : residue);
  return static_cast<u16>((positive << 16) % kModulus);
}

// Register: the type of a lane, whose lower bits are the Integer.
template <class Integer, class Register, class To>
void from_integer(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const Register* source = at<const Register>(registers, in.elementwise.source[0]);
  Codes codes{{}, false};
  for (int lane = 0; lane < kLanes; ++lane) {
    const Integer value = static_cast<Integer>(source[lane]);
    codes.at[lane] = std::is_same_v<Integer, u64>
                         ? code_of_integer(static_cast<s64>(value % kModulus))
                         : code_of_integer(static_cast<s64>(value));
  }
  alignas(64) typename To::Bits out[kLanes];
  To::write(codes, out);
  write_register<To, 1>(registers, in.elementwise.destination, mask, out);
}

// The integer nearest to zero that an element is; of one that does not fit, its lower bits.
template <class From, class Integer, class Register>
void to_integer(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const auto* source = at<const typename From::Bits>(registers, in.elementwise.source[0]);
  Codes codes;
  From::read(source, codes);
  alignas(64) Register out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const u16 code = codes.at[lane];
    const s64 residue = is_special(code) ? 0 : product_of(code, 1);  // without the factor R
    const s64 value = residue > s64{kModulus} / 2 ? residue - kModulus : residue;
    out[lane] = static_cast<Register>(static_cast<Integer>(value));
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class To>
Found of_integer(const std::string& from) {
  if (from == "s8") return Handlers(&from_integer<s8, u16, To>);
  if (from == "u8") return Handlers(&from_integer<u8, u16, To>);
  if (from == "s16") return Handlers(&from_integer<s16, u16, To>);
  if (from == "u16") return Handlers(&from_integer<u16, u16, To>);
  if (from == "s32") return Handlers(&from_integer<s32, u32, To>);
  if (from == "u32") return Handlers(&from_integer<u32, u32, To>);
  if (from == "s64") return Handlers(&from_integer<s64, u64, To>);
  if (from == "u64") return Handlers(&from_integer<u64, u64, To>);
  return std::nullopt;
}

template <class From>
Found integer_of(const std::string& to) {
  if (to == "s8") return Handlers(&to_integer<From, s8, s16>);
  if (to == "u8") return Handlers(&to_integer<From, u8, u16>);
  if (to == "s16") return Handlers(&to_integer<From, s16, s16>);
  if (to == "u16") return Handlers(&to_integer<From, u16, u16>);
  if (to == "s32") return Handlers(&to_integer<From, s32, s32>);
  if (to == "u32") return Handlers(&to_integer<From, u32, u32>);
  if (to == "s64") return Handlers(&to_integer<From, s64, s64>);
  if (to == "u64") return Handlers(&to_integer<From, u64, u64>);
  return std::nullopt;
}

// ---- numbers of eight bits and less. Their codes are what they are; an element without one gets
// some number of the format, so that equal elements stay equal.

// Powers of two as the other formats are.
struct Powers : PowerOfTwo {
  static constexpr u32 kSign = 0x80;
  static constexpr u8 kLargest = 0xfe, kNaN = 0xff;
};

template <class Format>
struct Bytes {
  static constexpr u32 kBits = Format::kSign == 8 ? 4 : 8;  // of a number in a pair
  u16 code_of[256];
  u8 nearest[kCodes];

  Bytes() {
    constexpr u32 codes = 2 * Format::kSign;
    for (u32 x = 0; x < kCodes; ++x)
      nearest[x] = x >= kUndefined ? Format::kNaN
                                   : static_cast<u8>((x * 40503u >> 8) % (Format::kLargest + 1u));
    for (u32 byte = 0; byte < 256; ++byte) {
      const u32 sizes = byte % codes;
      code_of[byte] = exact::code_of(bits_as<u32>(Format::decode(static_cast<u8>(sizes))));
      if (!is_special(code_of[byte])) nearest[code_of[byte]] = static_cast<u8>(sizes);
    }
    nearest[0] = 0;
  }
};
template <class Format>
const Bytes<Format>& bytes_of() {
  static const Bytes<Format> made;
  return made;
}

template <class Format, class To, u16 (*Then)(u16)>
void widen_pair(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const u16* source = at<const u16>(registers, in.elementwise.source[0]);
  const Bytes<Format>& table = bytes_of<Format>();
  alignas(64) u32 out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const u32 pair = source[lane], upper = pair >> table.kBits & 0xff;
    const u16 low = To::write(Then(table.code_of[pair & 0xff]));
    out[lane] = u32{To::write(Then(table.code_of[upper]))} << 16 | low;
  }
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class Format, u16 (*Then)(u16)>
void narrow_codes(u8* registers, const Instruction& in, u32 mask, const Codes& high,
                  const Codes& low) {
  const Bytes<Format>& table = bytes_of<Format>();
  alignas(64) u16 out[kLanes];
  for (int lane = 0; lane < kLanes; ++lane)
    out[lane] = static_cast<u16>(table.nearest[Then(high.at[lane])] << table.kBits |
                                 table.nearest[Then(low.at[lane])]);
  write_lanes(registers, in.elementwise.destination, mask, out);
}

template <class Format, u16 (*Then)(u16)>
void narrow_pair(u8* registers, const Instruction& in, u32 mask, Warp&) {
  Codes high, low;
  Single::read(at<const u32>(registers, in.elementwise.source[0]), high);
  Single::read(at<const u32>(registers, in.elementwise.source[1]), low);
  narrow_codes<Format, Then>(registers, in, mask, high, low);
}

// Of a register with two numbers of 16 bits.
template <class Format, class From, u16 (*Then)(u16)>
void narrow_halves(u8* registers, const Instruction& in, u32 mask, Warp&) {
  const u32* source = at<const u32>(registers, in.elementwise.source[0]);
  Codes high, low;
  for (int lane = 0; lane < kLanes; ++lane) {
    high.at[lane] = From::read(static_cast<u16>(source[lane] >> 16));
    low.at[lane] = From::read(static_cast<u16>(source[lane]));
  }
  narrow_codes<Format, Then>(registers, in, mask, high, low);
}

template <class Format, u16 (*Then)(u16)>
Found of_bytes(const std::string& to, const std::string& from) {
  if (from == "f32") return Handlers(&narrow_pair<Format, Then>);
  if (from == "f16x2") return Handlers(&narrow_halves<Format, HalfCode, Then>);
  if (from == "bf16x2") return Handlers(&narrow_halves<Format, BfloatCode, Then>);
  if (to == "f16x2") return Handlers(&widen_pair<Format, HalfCode, Then>);
  if (to == "bf16x2") return Handlers(&widen_pair<Format, BfloatCode, Then>);
  return std::nullopt;
}

template <u16 (*Then)(u16)>
Found bytes(const std::string& to, const std::string& from) {
  const std::string& format = to == "f16x2" || to == "bf16x2" ? from : to;
  if (format == "e4m3x2") return of_bytes<E4M3, Then>(to, from);
  if (format == "e5m2x2") return of_bytes<E5M2, Then>(to, from);
  if (format == "e3m2x2") return of_bytes<E3M2, Then>(to, from);
  if (format == "e2m3x2") return of_bytes<E2M3, Then>(to, from);
  if (format == "e2m1x2") return of_bytes<E2M1, Then>(to, from);
  if (format == "ue8m0x2") return of_bytes<Powers, Then>(to, from);
  return std::nullopt;
}

// ---- by name

template <class From, u16 (*Then)(u16)>
Found to_float(const std::string& to) {
  if (to == "f32" || to == "tf32") return Handlers(&convert<From, Single, Then>);
  if (to == "f16") return Handlers(&convert<From, HalfCode, Then>);
  if (to == "bf16") return Handlers(&convert<From, BfloatCode, Then>);
  if (to == "f64") return Handlers(&convert<From, Double, Then>);
  return std::nullopt;
}

template <u16 (*Then)(u16)>
Found between_floats(const std::string& to, const std::string& from) {
  if (from == "f32" && to == "f16x2") return Handlers(&convert_pair<HalfCode, Then>);
  if (from == "f32" && to == "bf16x2") return Handlers(&convert_pair<BfloatCode, Then>);
  if (from == "f32") {
    if (const Found found = to_float<Single, Then>(to)) return found;
  }
  if (from == "f16") return to_float<HalfCode, Then>(to);
  if (from == "bf16") return to_float<BfloatCode, Then>(to);
  if (from == "f64") return to_float<Double, Then>(to);
  return bytes<Then>(to, from);
}

Found with_integers(const std::string& to, const std::string& from) {
  if (from == "f32") return integer_of<Single>(to);
  if (from == "f16") return integer_of<HalfCode>(to);
  if (from == "bf16") return integer_of<BfloatCode>(to);
  if (from == "f64") return integer_of<Double>(to);
  if (to == "f32") return of_integer<Single>(from);
  if (to == "f16") return of_integer<HalfCode>(from);
  if (to == "bf16") return of_integer<BfloatCode>(from);
  if (to == "f64") return of_integer<Double>(from);
  return std::nullopt;
}

}  // namespace

Found conversion(const Name& name) {
  // Rounding a float to a whole number has no rule.
  if (name.base != "cvt" || name.modifiers.empty()) return std::nullopt;
  const std::string &to = name.modifiers.back(), &from = name.type;
  Name rest = name;
  rest.modifiers.pop_back();
  if (!rest.only({"rn", "rna", "rz", "rm", "rp", "ftz", "satfinite", "relu", "sat"}))
    return std::nullopt;
  Found found = rest.has("sat")    ? between_floats<&unit_part>(to, from)
                : rest.has("relu") ? between_floats<&positive_part>(to, from)
                                   : between_floats<&same>(to, from);
  if (!found && !rest.has("sat") && !rest.has("relu")) found = with_integers(to, from);
  return found;
}

}  // namespace workbench::ptx::exact
