// Addresses of one warp request: resolving them to host memory, and what statistics and checks see
// of them.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

enum class Space : u8 { global, shared, local, generic, param, constant };

// Where the lanes of a request point that lie in a known way.
struct Located {
  u8* first = nullptr;  // null: it is not known, or some of them may not access what they ask for
  const LaneOffsets* offsets = nullptr;
  u8* at(u32 lane) const { return first + static_cast<s64>(offsets->from_first[lane]); }
};

// Where each lane of a request points. Lanes outside `mask` point where the first active lane does,
// so that loads may read all 32.
struct Request {
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (block) block->located = nullptr;
  }
  // Where a lane's data is.
  u8* at(u32 lane) const { return located.first ? located.at(lane) : host[lane]; }

  u32 mask;          // lanes whose access is allowed
  u32 shadowed = 0;  // lanes of a plain store to shared memory that checks want to see (store_lane)
  u32 shadowed_global = 0;  // likewise to global memory
  u32 shadowed_remote = 0;  // likewise to shared memory of other blocks of the cluster
  // Of a strong access to global memory, with checks: other workers wait until it is done, so that
  // who reads a value has acquired what was published with it.
  std::unique_lock<std::recursive_mutex> held;
  // Of a request of all lanes that resolve_access found to lie in a known way. `host` is not filled
  // then, nor `address` where nobody looks on. resolve() fills them, and leaves the way alone.
  Located located;
  Block* block = nullptr;  // that knows of it (Block::located)
  alignas(
      64) u64 address[kLanes];  // global address, or offset into shared, local or parameter space
  alignas(64) u8* host[kLanes];
  alignas(64)
      u8 nowhere[64];  // where lanes point that may not access memory; as wide as the widest access
};

// Instruction::flags of an access to memory.
constexpr u32 kStrong = 1;        // volatile, relaxed, acquire or release
constexpr u32 kNarrowBase = 2;    // the address register has 32 bits
constexpr u32 kWideBase = 4;      // the address register has 64 bits
constexpr u32 kUnordered = 16;    // strong, but the handler itself says what it orders
constexpr u32 kRelease = 8;       // publishes what came before, without a fence of its own
constexpr u32 kClusterBase = 64;  // the address is one of shared memory of any block of the cluster
constexpr u32 kAcquire =
    1024;  // what comes after it sees what others published, without a fence of its own
constexpr u32 kVolatile = 128;     // strong by .volatile, which orders nothing
constexpr u32 kBlockScope = 2048;  // .cta: what it orders is ordered for its own block
// Of the aligned word that contains an element of one or two bytes: compilers make atomics of such
// elements from a compare-and-swap of the word, whose other bytes may lie outside of the memory.
constexpr u32 kWordOfElement = 4096;
constexpr u32 kAsyncProxy = 32;  // accesses shared memory through the async proxy

// Fills the request for `bytes` per lane; lanes that must not access are reported and removed from
// its mask. Not `Observed`: nobody looks on.
template <Space S, bool Observed = true>
void resolve(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
             bool is_read, Request& request);

// The same, but Request::located may tell where the lanes point.
template <Space S, bool Observed = true>
void resolve_access(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes,
                    bool is_write, bool is_read, Request& request);

// Spaces in which a request of all lanes may be known by the way they lie.
constexpr bool is_known(Space space) {
  return space == Space::global || space == Space::shared || space == Space::generic ||
         space == Space::constant;
}
// All that a request of all lanes takes if nobody looks on and they lie in a known way.
template <Space S>
Located locate(u8* registers, const Instruction& in, Warp& warp, u32 bytes, bool is_write);

// The address that the first lane asks for, as its register says.
inline u64 first_address(u8* registers, const Instruction& in) {
  if (in.flags & kNarrowBase)
    return *at<const u32>(registers, in.address) + static_cast<u32>(in.offset);
  return *at<const u64>(registers, in.address) + static_cast<u64>(in.offset);
}

// Whether a generic address is one in shared memory.
inline bool in_shared(u64 address) { return address >> 56 == kSharedWindow >> 56; }

// The same as resolve for addresses that the caller has put into the request; lanes outside `mask`
// repeat those of one inside.
template <Space S, bool Observed = true>
void resolve_addresses(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
                       bool is_read, Request& request);

// ---- statistics (see observe.cpp) ----

void observe_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                    bool is_write, bool is_read);
// Lanes that ask for the same address share a pass of the constant cache; different addresses take
// one each (CUDA C++ Programming Guide, Constant Memory).
void observe_constant(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
void observe_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                    bool is_write, bool is_read);
// The shared side of a cp.async, whose request was counted on its global side.
void observe_copy(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes);
void check_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                  bool is_write);
// Tells of lanes that touch what the instruction cannot mean; `extents` is one of the launch's.
void check_addresses(const Warp& warp, const Instruction& in, const std::vector<Extent>& extents,
                     const u64* addresses, u32 mask, u32 bytes, bool is_write);
// `offsets`: how the addresses lie to the first one; null if that is not known.
inline void check_extent(const Warp& warp, const Instruction& in,
                         const std::vector<Extent>& extents, const u64* addresses,
                         const LaneOffsets* offsets, u32 mask, u32 bytes, bool is_write) {
  if (extents.empty()) return;
  const Extent& extent = extents[static_cast<std::size_t>(warp.block->pc_of(in))];
  if (extent.high == ~u64{0}) return;
  if (offsets && !(is_write && extent.period) &&
      offsets->within(addresses[0] - extent.low, extent.high - extent.low, bytes))
    return;
  check_addresses(warp, in, extents, addresses, mask, bytes, is_write);
}
void check_extent(const Warp& warp, const Instruction& in, const std::vector<Extent>& extents,
                  u32 lane, u64 address, u32 bytes, bool is_write);
// Tells of lanes whose global address was computed from an index that has wrapped, of a warp that
// has such indexes.
void check_wrapped(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
void check_wrapped(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes);
// In the shared memory of other blocks of the cluster, whose ranks the addresses name. `changed`:
// lanes that store something else than what is there.
void check_remote(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, u32 changed);
// Strong accesses publish and receive what other warps did (see clocks.hpp).
void synchronise(Warp& warp, const Instruction& in, const u64* keys, u32 mask, bool is_write,
                 bool is_read);
void check_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, bool is_read);
// Stores `bytes` bytes for each lane of a request, one after the other in `values`; checks compare
// them with what is there.
void store_lanes(Warp& warp, const Instruction& in, const Request& request, const u8* values,
                 u32 bytes);
// The same for one lane.
void store_lane(Warp& warp, const Instruction& in, const Request& request, u32 lane,
                const void* from, u32 bytes);

}  // namespace workbench::ptx
