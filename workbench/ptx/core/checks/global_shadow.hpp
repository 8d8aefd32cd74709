// Shadow state of global memory, to find races and reads of what nobody wrote. 40 bytes for each
// 32-byte sector, 16 for each line of four, and on average up to 52 for a sector where several
// accesses to it have to be told apart: at most 3 bytes for one.
//
// Two accesses to a byte race if one of them is a plain store, the other one is plain or atomic,
// and neither comes before the other; two stores of the same value do not race, and who made one of
// them may read it. Accesses of one lane come one after the other, and those of two lanes of a warp
// if something orders them (Clocks::since). Within a block warps are ordered by their clocks
// (clocks.hpp). An access of another block comes before one of ours if its block published it (a
// fence, then a strong store or atomic, see Clocks::published) under an address that our warp, or
// one that ours comes after, has read with a strong access since; what a block has acquired it
// publishes too. Volatile and atomic accesses do not race with each other, and leave no trace.
//
// Exact but for these concessions, all towards silence: of more than two concurrent readers of a
// byte two are kept; where more than two stored the same value to a byte its readers are not
// accused, nor where it was only read and put back; loads that reach nothing (Launch::unused) are
// passed over; and when the list of extra records is full, a new one replaces the last. (When it is
// a good half full, accesses of one warp share a record: a finding may name another line of that
// warp as the other side, and races between its lanes go unseen.)
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "checks/footprint.hpp"
#include "memory/access.hpp"
#include "memory/lanes.hpp"

namespace workbench::ptx {

// What one instruction of a warp did to a sector, between two of the warp's steps.
struct GlobalAccess {
  u32 block = 0;  // number of the block in this process, see ShadowPages; 0 for no access
  u32 when = 0;   // warp and step, see Asking; of a write, the step since which it is unordered
  u32 bytes = 0;  // of the sector
  u16 pc = 0;     // kUnknownPc where it does not fit
  Lanes lanes{};
};

// A line of 128 bytes, as long as nothing is known of it but one access to all of it. Sectors tell
// more: it is open then.
struct GlobalLine {
  enum State : u32 { read, written, open };
  u32 block = 0;  // as in GlobalAccess
  u32 when = 0;
  u16 pc = 0;
  Lanes lanes{};
  State state = read;
};
static_assert(sizeof(GlobalLine) == 16);

struct GlobalSector {
  GlobalAccess write, read;
  u16 agreed;  // pairs of bytes to which more than two stored the same value, or that were read and
               // put back
  u32 more;    // first of the extra records; 0 is none
};
static_assert(sizeof(GlobalSector) == 40);

// Memory of the shadow, kept from one launch to the next as mapping fresh pages costs more than the
// checks. Block numbers go on from launch to launch, so that nothing has to be cleared: a record of
// an earlier launch counts as empty.
class ShadowPages {
 public:
  ShadowPages(u64 sectors, u64 lines, u64 blocks);
  ~ShadowPages();
  ShadowPages(const ShadowPages&) = delete;
  ShadowPages& operator=(const ShadowPages&) = delete;

  GlobalSector* sectors() const { return pages_.sectors; }
  GlobalLine* lines() const { return pages_.lines; }
  u32 base() const { return base_; }  // block i of this launch has the number base + 1 + i

 private:
  struct Pages {
    GlobalSector* sectors = nullptr;
    GlobalLine* lines = nullptr;
    u64 capacity = 0, lines_capacity = 0;
    u32 next = 0;

    void free();
  };
  static constexpr u64 kKept =
      (u64{64} << 20) / sizeof(GlobalSector);  // sectors that the process may keep

  static std::mutex mutex_;
  static Pages idle_;

  Pages pages_;
  u32 base_ = 0;
};

class GlobalShadow {
 public:
  // The launch must outlive this.
  explicit GlobalShadow(Launch& launch);

  // Keeps other workers out, so that nobody stores between a comparison of bytes and the request
  // that it is for, or reads a strong store before what it publishes is known (Request::held).
  std::unique_lock<std::recursive_mutex> hold() {
    return shared_ ? std::unique_lock(mutex_) : std::unique_lock(mutex_, std::defer_lock);
  }

  // One plain request. `changed`: lanes of a store whose bytes differ from what is there.
  void read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  void write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
             u32 changed);
  // What a cp.async reads is read until now.
  void read_again(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  // Lanes write where copies may still read; `by`: all of it for that one, if not each for itself.
  void check_sources(Warp& warp, const Instruction& in, const u64* addresses, u32 lanes, u32 bytes,
                     int by) const;
  // One plain load of whole lines, `base` being what the pieces' sectors count from. False if there
  // is more to it, and it is to be read.
  bool read_lines(const Warp& warp, const Instruction& in, const LanePieces& pieces, u64 base);
  // One strong request, after Shadow's clocks have seen it.
  void strong(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
              bool is_write, bool is_read);

  // A fence of a warp for other blocks: what the warp has read flags of, it has acquired.
  void fenced(const Warp& warp);

  void end_block(s64 block);

  // What a kernel of that name did.
  Footprint footprint(std::string kernel) const;

  // Bytes of shadow state for this launch.
  u64 bytes() const;

 private:
  static constexpr u32 kWarpShift = 27, kLatest = (1u << kWarpShift) - 1;

  static constexpr u32 kMostIndex = (1u << 31) - 1;
  struct Extra {
    GlobalAccess access;
    u32 next : 31 = 0;
    u32 is_write : 1 = 0;
  };
  static_assert(sizeof(Extra) == 20);
  // The one who asks: its place, and what it has seen of its own block's warps.
  struct Asking {
    Warp& warp;
    const Instruction& in;
    const u64* addresses;
    u32 mask;         // lanes
    u32 width;        // bytes per lane
    u32 block;        // its number
    u32 index;        // of the warp
    u32 since, when;  // the warp, and its step: since which its lanes are unordered, and now
    u16 pc;
    // Lanes: with their own block, with another one, and with a read that was handed on.
    u32 reported[3];

    // Bytes of a sector that a lane touches.
    u32 touched(u32 lane, u64 sector) const {
      return addresses[lane] >> 5 == sector
                 ? (width >= 32 ? ~0u : (1u << width) - 1) << (addresses[lane] & 31)
                 : 0;
    }
  };
  using Piece = LanePiece;
  // A request's pieces.
  struct Divided {
    const LanePieces& pieces;
    u64 base;     // what their sectors count from
    u32 changed;  // bytes that count as changed, beside the pieces' own
  };
  // What a warp learnt from a flag: everything that these blocks had published.
  struct Acquired {
    u32 agent, clock;
    bool fenced;              // with an acquire, or a fence behind the read
    std::vector<u64> blocks;  // one bit each
  };
  struct Published {
    u32 steps[Clocks::kWarps] = {};  // of each warp: what it did before is published
  };

  Asking asking(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) const;
  // Likewise of a request, unless it is that of a copy, which has been checked.
  void check_sources(const Asking& who, u32 lanes, const LanePieces& pieces, u64 base) const;
  template <bool Again>
  void read_pieces(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  template <class OnSector, class OnLine>
  void for_each_piece(const Asking& who, const Divided& divided, OnSector on_sector,
                      OnLine on_line);
  bool fresh(const GlobalSector& sector) const {
    return sector.write.block > base_ || sector.read.block > base_;
  }
  template <class Access>
  bool before(const Access& access, const Asking& who) const;
  template <class F>
  u32 unordered(const GlobalAccess& access, const Asking& who, u32 bytes, F between_lanes) const;
  bool published(u32 block, u32 when, const Asking& who) const;
  GlobalAccess read_of(const Asking& who, u32 bytes, Lanes lanes) const {
    return {who.block, who.when, bytes, who.pc, lanes};
  }
  GlobalAccess write_of(const Asking& who, u32 bytes, Lanes lanes) const {
    return {who.block, who.since, bytes, who.pc, lanes};
  }
  // Of the same warp, and nothing has ordered its lanes since.
  template <class Access>
  bool same(const Access& access, const Asking& who) const {
    return access.block == who.block && access.when >= who.since && access.when <= who.when;
  }
  void report(Asking& who, const Piece& piece, u32 bytes, const GlobalAccess& other,
              bool is_read = false) const;
  void check_overlap(const Asking& who, bool is_write) const;
  void report_clash(const Asking& who, u32 lanes) const;
  void report_unwritten(const Asking& who, const Piece& piece, u32 bytes) const;
  void check_written(const Asking& who, const Buffer& buffer, const Piece& piece) const;

  bool read_line(const Asking& who, const Piece& piece, GlobalLine& line) const;
  bool write_line(const Asking& who, const Piece& piece, GlobalLine& line) const;
  void open(GlobalLine& line, const Asking& who, GlobalSector* sectors) const;
  void check_writes(Asking& who, const Piece& piece, const GlobalSector& sector) const;
  bool read_by_two(const Asking& who, u32 bytes, const GlobalSector& sector) const;
  void record_read(const Asking& who, const Piece& piece, GlobalSector& sector);
  u32 only_read(const Asking& who, const Piece& piece, const GlobalSector& sector) const;
  void write_sector(Asking& who, const Piece& piece, GlobalSector& sector);
  bool crowded() const { return extras_.size() >= most_extras_ * 17 / 32; }
  void add(GlobalSector& sector, const GlobalAccess& access, bool is_write);
  void settle(GlobalSector& sector);
  template <class F>
  void for_each_extra(GlobalSector& sector, F keep);

  void publish(Warp& warp, u64 address);
  void acquire(const Warp& warp, u64 address, bool fenced);
  void learn(const Warp& warp, bool fenced, const std::vector<u64>* flag);

  Launch& launch_;
  u64 sectors_ = 0, lines_ = 0;
  std::unique_ptr<ShadowPages> pages_;
  u32 base_ = 0;
  std::vector<Extra> extras_;
  std::size_t most_extras_ = 0;
  u32 free_extra_ = 0;
  std::recursive_mutex mutex_;
  bool shared_ = false;  // by several workers

  std::unordered_map<u64, std::vector<u64>> flags_;  // by address: blocks that published there
  std::unordered_map<u32, Published> published_;     // by block index
  std::unordered_map<u32, std::vector<Acquired>> acquired_;  // by block index, while it runs
};

}  // namespace workbench::ptx
