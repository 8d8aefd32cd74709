// Relative addresses and mask of a request's lanes. Most instructions repeat the same pattern, so
// the cost of a request and the bytes of each lane are computed once for an instruction, not for
// each execution.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "memory/lanes.hpp"

namespace workbench::ptx {

// A global request in 32-byte sectors. Accesses are aligned and have at most 32 bytes, so each lane
// touches one sector.
struct Pieces {
  int count = 0;
  u32 distinct_bytes = 0;
  u64 sector[kLanes];  // address / 32, each once, ascending
  u32 bytes[kLanes];   // bytes of the sector, as bits
};
void split_into_sectors(const u64* addresses, u32 mask, u32 bytes, Pieces& pieces);

// Passes through the 32 banks of shared memory that a request takes, and those it would take
// without bank conflicts.
//
// 32 lanes get 128 bytes per pass: a request of 8 bytes per lane goes by half warps, one of 16 by
// quarters. A load in which every active lane asks for the same address as its neighbour (lane ^
// 1), or the next but one (lane ^ 2), packs what it returns and takes half as many; a 16-byte
// request therefore takes at least two. Source: G. Smith (NVIDIA),
// forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228, for compute
// capability 7.0 and later. A part of the warp without active lanes takes no pass. Within a pass,
// lanes that touch the same 32-bit word share it, and a bank delivers one word (CUDA C++
// Programming Guide, Shared Memory).
struct Wavefronts {
  u32 taken = 0, ideal = 0;
};
Wavefronts shared_wavefronts(const u64* offsets, u32 mask, u32 bytes, bool is_load);

// The lanes of a request, grouped by address.
struct LaneGroups {
  int count = 0;
  u32 lanes[kLanes];
};

template <class A>
void group_by_address(const A* addresses, u32 mask, u32 bytes, LaneGroups& groups) {
  // A hash table of the addresses so far; as accesses are aligned, neighbours get different places.
  constexpr u32 kPlaces = 64;
  u8 group_at[kPlaces] = {};  // number of the group plus one
  const u32 shift = static_cast<u32>(__builtin_ctz(bytes));
  groups.count = 0;
  PTX_FOR_EACH_LANE (lane, mask) {
    u32 place = static_cast<u32>(addresses[lane] >> shift) % kPlaces;
    while (group_at[place] &&
           addresses[first_lane(groups.lanes[group_at[place] - 1])] != addresses[lane])
      place = (place + 1) % kPlaces;
    if (!group_at[place]) {
      groups.lanes[groups.count++] = 0;
      group_at[place] = static_cast<u8>(groups.count);
    }
    groups.lanes[group_at[place] - 1] |= 1u << lane;
  }
}

// The lines of memory that a request touches, each once.
struct LineParts {
  // The size of a line, and of the part that one bit of `part` stands for, as powers of two.
  struct Scale {
    u32 line, part;
    bool operator==(const Scale&) const = default;

    u64 part_of(u64 address, u32 bytes) const {
      const u64 place = (address & ((1u << line) - 1)) >> part;
      return ((u64{1} << (bytes >> part)) - 1) << place;
    }
  };
  u32 count = 0;
  bool overlaps = false;  // several lanes touch the same bytes
  u32 line[kLanes];       // number of the line
  u32 lanes[kLanes];      // number of lanes that touch it
  u64 part[kLanes];       // parts of the line that they touch, as bits
};

class Pattern {
  static constexpr u64 kInLine = 127;

 public:
  // Whether a request has this pattern, regardless of the line of its first address.
  bool fits(const u64* addresses, u32 mask, u32 bytes) const;
  void become(const u64* addresses, u32 mask, u32 bytes);

  // The addresses of a request with this pattern and that first address.
  template <class A>
  void addresses_from(A first, A* addresses) const {
    PTX_LANES {
      addresses[lane] = first + static_cast<A>(offset_[lane]);
    }
  }
  bool stays() const { return stays_; }
  u32 bytes() const { return bytes_; }

  // The following functions take the addresses of a request that fits. Sectors count from base().
  u64 base(const u64* addresses) const { return addresses[first_lane(mask_)] >> 5; }
  const Pieces& sectors(const u64* addresses);
  const LanePieces& pieces(const u64* addresses);
  const LaneGroups& groups(const u64* addresses);
  Wavefronts wavefronts(const u64* offsets, bool is_load);
  // The pieces if they are known and all of them are lines; otherwise null.
  const LanePieces* lines() const {
    return known_ & has_pieces && pieces_.lines ? &pieces_ : nullptr;
  }
  // Lines count from the line of the first address.
  const LineParts& line_parts(const u64* addresses, LineParts::Scale scale);
  // The result of the latest call.
  const LineParts& line_parts() const { return parts_; }

 private:
  enum Known : u32 {
    has_sectors = 1,
    has_pieces = 2,
    has_groups = 4,
    has_wavefronts = 8,
    has_parts = 16
  };
  bool learns(Known what) {
    const bool fresh = !(known_ & what);
    known_ |= what;
    return fresh;
  }

  friend class Patterns;
  bool stays_ = false;
  u32 mask_ = 0;  // 0: no request so far
  u32 bytes_ = 0;
  u32 known_ = 0;
  u64 in_line_ = 0;                 // offset of the first address in its line of 128 bytes
  alignas(32) u64 offset_[kLanes];  // offset of each address from the first one
  LineParts::Scale scale_{};        // scale of parts_
  Wavefronts wavefronts_;
  LineParts parts_;
  LaneGroups groups_;
  LanePieces pieces_;
  Pieces sectors_;
};

// The patterns of a worker's requests. Instructions with equal patterns share one.
class Patterns {
 public:
  // `places`: number of sources of requests, such as an instruction for global or for shared
  // memory.
  void resize(std::size_t places) { places_.resize(places); }
  // Finds the pattern of a request by its place. Unless it is kept, it may change with the next
  // request. `offsets`: the number of the layout of all lanes (LaneOffsets::number); 0 if it is not
  // known.
  Pattern& find(std::size_t place, const u64* addresses, u32 mask, u32 bytes, u64 offsets) {
    if (offsets)
      if (Pattern* const pattern = recent(place, addresses[0], bytes, offsets)) return *pattern;
    return find_or_make(places_[place], addresses, mask, bytes,
                        offsets ? Recent::key_of(addresses[0], bytes, offsets) : 0);
  }
  // Finds the pattern of a request of all lanes by its first address only, among the latest ones;
  // null if it is not there.
  Pattern* recent(std::size_t place, u64 first, u32 bytes, u64 offsets) const {
    const u64 key = Recent::key_of(first, bytes, offsets);
    for (const Recent& one : places_[place].recent)
      if (one.key == key) return one.pattern;
    return nullptr;
  }

 private:
  static constexpr std::size_t kRecent = 4;
  static constexpr u32 kMostOfPlace = 16;  // limit of patterns kept for a place
  static constexpr std::size_t kMost = 1024;

  struct Recent {
    Pattern* pattern = nullptr;
    u64 key = 0;  // layout number of a request of all lanes; 0 if it is not known

    static u64 key_of(u64 first, u32 bytes, u64 offsets) {
      return offsets << 16 | bytes << 8 | (first & Pattern::kInLine);
    }
  };
  struct Place {
    std::array<Recent, kRecent> recent{};
    u32 made = 0;
    // Pattern of the latest request, where there are too many to keep.
    std::unique_ptr<Pattern> own;
  };
  Pattern& find_or_make(Place& place, const u64* addresses, u32 mask, u32 bytes, u64 key);
  Pattern& make(Place& place, const u64* addresses, u32 mask, u32 bytes);

  std::vector<Place> places_;
  std::unordered_multimap<u64, std::unique_ptr<Pattern>> all_;
};

}  // namespace workbench::ptx
