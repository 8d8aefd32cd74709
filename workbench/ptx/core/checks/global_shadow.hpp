// Shadow state of global memory, which finds races and reads of bytes that nothing wrote. It takes
// 40 bytes for each 32-byte sector, 16 for each line of four sectors, and on average up to 52 for a
// sector where several accesses must be told apart: at most 3 bytes for each byte of memory. Where
// strong accesses write, it takes 68 more for a sector.
//
// Two accesses to a byte race if one is a plain store, the other is plain or atomic, and neither
// comes before the other. Two stores of the same value do not race, and the lanes that stored it
// may read it. Accesses of one lane come one after the other; those of two lanes of a warp do if
// something orders them (Clocks::since). Warps of one block are ordered by their clocks
// (clocks.hpp). An access of another block comes before one of ours if its block published it (a
// fence, then a strong store or atomic, see Clocks::published) at an address that our warp, or a
// warp that ours comes after, has since read with a strong access; a block publishes what it has
// acquired, too. Strong accesses (atomic, volatile, .relaxed or more) do not race with each other.
//
// A strong write races with plain accesses. It comes before a block that has seen it, by a strong
// load of the same bytes, or by an atomic whose old value the kernel uses: of such atomics on one
// place only the last one counts, as it has seen the others.
//
// The result is exact except for these cases, in which a race may be missed: of more than two
// concurrent readers of a byte, two are kept; of the warps that write to a sector by strong
// accesses, three are kept; a plain store races with no strong load before it, nor a strong load
// with a plain store; a byte to which more than two warps stored the same
// value, or that was only read and put back, gives no finding for its readers; loads whose value
// reaches nothing (Launch::unused) are skipped; and when the list of extra records is full, a new
// one replaces the last. (When the list is a good half full, accesses of one warp share a record: a
// finding may then name another line of that warp as the other side, and races between its lanes
// are missed.)
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "checks/footprint.hpp"
#include "memory/access.hpp"
#include "memory/lanes.hpp"

namespace workbench::ptx {

// One instruction's accesses of a warp to a sector, between two of the warp's steps.
struct GlobalAccess {
  u32 block = 0;  // number of the block in this process, see ShadowPages; 0 for no access
  u32 when = 0;   // warp and step, see Asking; of a write, the step since which it is unordered
  u32 bytes = 0;  // bytes of the sector
  u16 pc = 0;     // kUnknownPc if it does not fit
  Lanes lanes{};
};

// A line of 128 bytes with the record of one access to all of it. Once it is open, its sectors have
// the records.
struct GlobalLine {
  enum State : u8 { read, written, open };
  u32 block = 0;  // as in GlobalAccess
  u32 when = 0;
  u16 pc = 0;
  Lanes lanes{};
  State state = read;
  bool stored = false;  // written as a whole at some time, even if the record is of a later read
};
static_assert(sizeof(GlobalLine) == 16);

struct GlobalSector {
  GlobalAccess write, read;
  // Pairs of bytes to which more than two warps stored the same value, or that were read and put
  // back.
  u16 agreed;
  u32 more;  // index of the first extra record; 0 is none
};
static_assert(sizeof(GlobalSector) == 40);

// The latest strong writes to a sector, and who has seen them.
struct alignas(64) StrongWrites {
  static constexpr u32 kAll = ~0u, kNone = 3;
  static constexpr u8 kSeveral = 255;
  GlobalAccess writes[kNone];
  u32 seen_by = 0;     // a block; kAll for any
  u8 seen = 0;         // words of four bytes that it has seen
  u8 turn = 0;         // which of the writes is replaced next
  u8 parted = kNone;   // the write for which no rule gives the lanes, and lane_of does
  u8 lane_of[8] = {};  // by word; kSeveral where it is not one lane
};
static_assert(sizeof(StrongWrites) == 64);

// Memory of the shadow. It is kept from one launch to the next, because mapping fresh pages costs
// more than the checks. Block numbers go on from launch to launch, so nothing has to be cleared: a
// record with a number of an earlier launch counts as empty.
class ShadowPages {
 public:
  ShadowPages(u64 sectors, u64 lines, u64 blocks);
  ~ShadowPages();
  ShadowPages(const ShadowPages&) = delete;
  ShadowPages& operator=(const ShadowPages&) = delete;

  GlobalSector* sectors() const { return pages_.sectors; }
  GlobalLine* lines() const { return pages_.lines; }
  std::vector<StrongWrites>& strong() { return pages_.strong; }
  u32 base() const { return base_; }  // block i of this launch has the number base + 1 + i

 private:
  struct Pages {
    GlobalSector* sectors = nullptr;
    GlobalLine* lines = nullptr;
    u64 capacity = 0, lines_capacity = 0;
    std::vector<StrongWrites> strong;
    u32 next = 0;

    void free();
  };
  static constexpr u64 kKept =
      (u64{64} << 20) / sizeof(GlobalSector);  // limit of the sectors that the process keeps

  static std::mutex mutex_;
  static Pages idle_;

  Pages pages_;
  u32 base_ = 0;
};

class GlobalShadow {
 public:
  // The launch must outlive this.
  explicit GlobalShadow(Launch& launch);

  // Keeps other workers out, so that none stores between a comparison of bytes and its request, or
  // reads a strong store before the blocks that it publishes are recorded (Request::held).
  std::unique_lock<std::recursive_mutex> hold() {
    return shared_ ? std::unique_lock(mutex_) : std::unique_lock(mutex_, std::defer_lock);
  }

  // Records one plain request. `changed`: lanes of a store that changes bytes.
  void read(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  void write(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
             u32 changed);
  // Extends the read of a cp.async to now.
  void read_again(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes);
  // Reports lanes that write memory which copies may still read. `by`: the lane that performs the
  // whole write; negative if each lane writes its own part.
  void check_sources(Warp& warp, const Instruction& in, const u64* addresses, u32 lanes, u32 bytes,
                     int by) const;
  // Records one plain load of whole lines; sectors count from `base`. Returns false if read() has
  // to be called instead.
  bool read_lines(const Warp& warp, const Instruction& in, const LanePieces& pieces, u64 base);
  // Records one strong request, after Shadow's clocks have processed it.
  void strong(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
              bool is_write, bool is_read);

  // A fence of a warp for other blocks: it acquires what was published at the flags that it has
  // read.
  void fenced(const Warp& warp);

  void end_block(s64 block);

  // The bytes that the launch accessed, in rows of three: begin, end, and the instruction above
  // eight bits of Kind. Memory that only one proof covers is missing.
  enum Kind : u64 { reads = 1, writes = 2, strong_only = 4 };
  std::vector<u64> accesses() const;

  // The accesses of this launch, as a Footprint that names the kernel.
  Footprint footprint(std::string kernel) const;

  // Bytes that the shadow state of this launch takes.
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
  // The request that is being checked: its place, and the clocks of its warp.
  struct Asking {
    Warp& warp;
    const Instruction& in;
    const u64* addresses;
    u32 mask;   // lanes that take part
    u32 width;  // bytes per lane
    u32 block;  // number of the block
    u32 index;  // index of the warp
    // Warp and step: the step since which its lanes are unordered, and the current one.
    u32 since, when;
    u16 pc;
    // Lanes already reported: for a race in their own block, with another block, and with a read
    // whose value was handed on.
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
    u64 base;     // start of the pieces' sectors
    u32 changed;  // bytes that count as changed, in addition to the pieces' own
  };
  // Blocks whose published accesses a warp acquired from a flag.
  struct Acquired {
    u32 agent, clock;
    bool fenced;              // by an acquire, or by a fence after the read
    std::vector<u64> blocks;  // a bit for each block
  };
  struct Published {
    u32 steps[Clocks::kWarps] = {};  // by warp: accesses before this step are published
  };

  // `since`: the step since which the warp's lanes are unordered.
  Asking asking(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes,
                u32 since) const;
  Asking asking(Warp& warp, const Instruction& in, const u64* addresses, u32 mask, u32 bytes) const;
  // The same for a request; requests of copies are checked when they are issued.
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
  // Whether an access is of the same warp and nothing has ordered the warp's lanes since.
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
  void check_reads(Asking& who, const Piece& piece, const GlobalSector& sector) const;
  // The strong writes to a piece's sector; null if there are none.
  StrongWrites* strong_writes(const Buffer& buffer, const Piece& piece) {
    if (strong_->empty()) return nullptr;
    const std::unique_ptr<u32[]>& places = strong_of_[index_of(buffer)];
    const u32 place = places ? places[piece.sector - (buffer.address >> 5)] : 0;
    return place ? &(*strong_)[place - 1] : nullptr;
  }
  std::size_t index_of(const Buffer& buffer) const {
    return static_cast<std::size_t>(&buffer - launch_.buffers.data());
  }
  void touch(const Buffer& buffer, u64 line) {
    Touched& parts = touched_[index_of(buffer)];
    parts.bits |= u64{1} << (line >> parts.shift);
  }
  void request_strong(const Block& block, s32 pc, const LanePieces& pieces, u64 base) const;
  StrongWrites& add_strong_writes(const Buffer& buffer, const Piece& piece);
  void check_strong(Asking& who, const Piece& piece, u32 bytes, const StrongWrites& known) const;
  void record_strong(const Asking& who, const Piece& piece, StrongWrites& known) const;
  static void add_lanes(StrongWrites& known, u32 which, const Piece& piece);
  bool read_by_two(const Asking& who, u32 bytes, const GlobalSector& sector) const;
  void record_read(const Asking& who, const Piece& piece, GlobalSector& sector);
  u32 only_read(const Asking& who, const Piece& piece, const GlobalSector& sector) const;
  void write_sector(Asking& who, const Piece& piece, GlobalSector& sector);
  bool crowded() const { return extras_.size() >= most_extras_ * 17 / 32; }
  void add(GlobalSector& sector, const GlobalAccess& access, bool is_write);
  void settle(GlobalSector& sector);
  template <class F>
  void for_each_extra(GlobalSector& sector, F keep);

  void publish(Warp& warp, const u64* addresses, u32 mask);
  void acquire(const Warp& warp, u64 address, bool fenced);
  void learn(const Warp& warp, bool fenced, const std::vector<u64>* flag);

  // The parts of a buffer that the launch accessed, a bit for each, and the lines of a part, as a
  // shift.
  struct Touched {
    u64 bits;
    u32 shift;
  };

  Launch& launch_;
  u64 sectors_ = 0, lines_ = 0;
  std::unique_ptr<ShadowPages> pages_;
  std::vector<Touched> touched_;  // by buffer
  u32 base_ = 0;
  std::vector<Extra> extras_;
  std::size_t most_extras_ = 0;
  u32 free_extra_ = 0;
  std::vector<StrongWrites> no_strong_, *strong_ = &no_strong_;
  // By buffer and sector, places in strong_ from 1; allocated when needed.
  std::vector<std::unique_ptr<u32[]>> strong_of_;
  std::recursive_mutex mutex_;
  bool shared_ = false;  // several workers use it

  std::unordered_map<u64, std::vector<u64>> flags_;  // by address: blocks that published there
  std::unordered_map<u32, Published> published_;     // by block index
  std::unordered_map<u32, std::vector<Acquired>> acquired_;  // by block index, while it runs
};

}  // namespace workbench::ptx
