// The addresses of one warp request: resolves them to host memory and shows them to statistics and
// checks.
#pragma once
#include "warp.hpp"

namespace workbench::ptx {

enum class Space : u8 { global, shared, local, generic, param, constant };

// The host addresses of the lanes of a request with a known layout.
struct Located {
  // Null: the layout is not known, or some lanes must not access their address.
  u8* first = nullptr;
  const LaneOffsets* offsets = nullptr;
  u8* at(u32 lane) const { return first + static_cast<s64>(offsets->from_first[lane]); }
};

// The addresses of a request's lanes. Lanes outside `mask` repeat the first active lane, so that
// loads may read for all 32.
struct Request {
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (block) block->located = nullptr;
  }
  // The host address of a lane's data.
  u8* at(u32 lane) const { return located.first ? located.at(lane) : host[lane]; }

  u32 mask;  // lanes whose access is allowed
  // Lanes of a plain store to shared memory that checks still have to see (store_lane).
  u32 shadowed = 0;
  u32 shadowed_global = 0;  // the same for global memory
  u32 shadowed_remote = 0;  // the same for shared memory of other blocks of the cluster
  // Held during a strong access to global memory, with checks: other workers wait until it is done,
  // so that a lane that reads a value has also acquired what was published with it.
  std::unique_lock<std::recursive_mutex> held;
  // Set by resolve_access for a request of all lanes whose layout is known. Then `host` is not
  // filled in, nor `address` in a launch that is not observed; resolve() fills them in and leaves
  // this unset.
  Located located;
  Block* block = nullptr;  // the block whose Block::located describes the request
  alignas(
      64) u64 address[kLanes];  // global address, or offset into shared, local or parameter space
  alignas(64) u8* host[kLanes];
  alignas(64)
      u8 nowhere[64];  // memory for lanes that may not access theirs; as wide as the widest access
};

// Instruction::flags of an access to memory.
constexpr u32 kStrong = 1;        // volatile, relaxed, acquire or release
constexpr u32 kNarrowBase = 2;    // the address register has 32 bits
constexpr u32 kWideBase = 4;      // the address register has 64 bits
constexpr u32 kUnordered = 16;    // strong, but its handler decides what it orders
constexpr u32 kRelease = 8;       // publishes earlier accesses without a fence of its own
constexpr u32 kClusterBase = 64;  // the address is in shared memory of any block of the cluster
constexpr u32 kAcquire =
    1024;  // later accesses see what others published, without a fence of its own
constexpr u32 kVolatile = 128;     // strong by .volatile, which orders nothing
constexpr u32 kBlockScope = 2048;  // .cta: orders accesses for its own block only
// The access covers the aligned word that contains an element of one or two bytes: compilers
// implement atomics of such elements by a compare-and-swap of the word, whose other bytes may lie
// outside the buffer.
constexpr u32 kWordOfElement = 4096;
constexpr u32 kUsesOld = 8192;   // an atomic whose old value the kernel uses
constexpr u32 kAsyncProxy = 32;  // accesses shared memory through the async proxy

// Fills in the request for `bytes` per lane. Lanes with an invalid access are reported and removed
// from its mask. Without `Observed`, statistics and checks are skipped.
template <Space S, bool Observed = true>
void resolve(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
             bool is_read, Request& request);

// The same, but it may set Request::located in place of the addresses.
template <Space S, bool Observed = true>
void resolve_access(u8* registers, const Instruction& in, u32 mask, Warp& warp, u32 bytes,
                    bool is_write, bool is_read, Request& request);

// Whether requests of all lanes in this space may have a known layout.
constexpr bool is_known(Space space) {
  return space == Space::global || space == Space::shared || space == Space::generic ||
         space == Space::constant;
}
// The fast path of a launch that is not observed: all lanes, with a known layout.
template <Space S>
Located locate(u8* registers, const Instruction& in, Warp& warp, u32 bytes, bool is_write);

// The address in the first lane's register.
inline u64 first_address(u8* registers, const Instruction& in) {
  if (in.flags & kNarrowBase)
    return *at<const u32>(registers, in.address) + static_cast<u32>(in.offset);
  return *at<const u64>(registers, in.address) + static_cast<u64>(in.offset);
}

// Whether a generic address is in shared memory.
inline bool in_shared(u64 address) { return address >> 56 == kSharedWindow >> 56; }

// The same as resolve(), for addresses that the caller has put into the request; lanes outside
// `mask` repeat the address of one inside.
template <Space S, bool Observed = true>
void resolve_addresses(const Instruction& in, u32 mask, Warp& warp, u32 bytes, bool is_write,
                       bool is_read, Request& request);

// ---- statistics (see observe.cpp) ----

void observe_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                    bool is_write, bool is_read);
// Counts a request to constant memory. Lanes with the same address share a pass of the constant
// cache; different addresses take one pass each (CUDA C++ Programming Guide, Constant Memory).
void observe_constant(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
void observe_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                    bool is_write, bool is_read);
// Counts the shared side of a cp.async, whose request was counted on its global side.
void observe_copy(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes);
void check_shared(Warp& warp, const Instruction& in, const u64* offsets, u32 mask, u32 bytes,
                  bool is_write);
// Reports lanes outside the range that the instruction can mean; `extents` is one of the launch's
// lists.
void check_addresses(const Warp& warp, const Instruction& in, const std::vector<Extent>& extents,
                     const u64* addresses, u32 mask, u32 bytes, bool is_write);
// `offsets`: the layout of the addresses relative to the first one; null if it is not known.
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
// Reports lanes whose global address was computed from an index that has wrapped, in a warp with
// such indexes.
void check_wrapped(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
void check_wrapped(Warp& warp, const Instruction& in, u32 lane, u64 address, u32 bytes);
// Checks accesses to the shared memory of other blocks of the cluster; the addresses contain their
// ranks. `changed`: lanes that change memory.
void check_remote(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, u32 changed);
// Lets a strong access acquire what other warps did (see clocks.hpp), and publish; it is checked
// and recorded between the two.
void acquire_flags(Warp& warp, const u64* keys, u32 mask, bool is_read);
void release_flags(Warp& warp, const Instruction& in, const u64* keys, u32 mask, bool is_write);
void check_global(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                  bool is_write, bool is_read);
// Stores `bytes` bytes of `values` for each lane of a request; checks compare them with the old
// bytes.
void store_lanes(Warp& warp, const Instruction& in, const Request& request, const u8* values,
                 u32 bytes);
// The same for one lane.
void store_lane(Warp& warp, const Instruction& in, const Request& request, u32 lane,
                const void* from, u32 bytes);

}  // namespace workbench::ptx
