// The heap that malloc and free take from inside kernels. It outlives launches: one kernel may free
// what another one allocated. Blocks are exact to the byte, stand apart, and what is freed is given
// out again only when the heap has been gone through once, so that a stale address is noticed.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

class DeviceHeap {
 public:
  static constexpr u64 kSpan = 4;  // times the limit are the addresses that it takes

  // Where a block came from: a kernel by the caller's number, and the instruction.
  struct Origin {
    u64 kernel;
    s32 pc;
  };
  struct Leak {
    Origin origin;
    u64 blocks, bytes;
  };

  // From `address` on, for `limit` bytes in blocks of 16. Throws std::bad_alloc.
  DeviceHeap(u64 address, u64 limit);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;

  u64 address() const { return address_; }
  u64 size() const { return size_; }
  u8* host() const { return host_; }
  u32* written() const { return written_; }

  // The address of a new block; 0 where there is no room. A block of 0 bytes has an address, too.
  u64 take(u64 bytes, Origin origin);
  // False where no block begins at the address.
  bool give_back(u64 address);
  // Whether all the bytes are of one block that is there.
  bool holds(u64 address, u64 bytes) const;
  // What lies at an address that a kernel has no right to.
  std::string describe(u64 address) const;
  // The blocks that are there, by where they came from.
  std::vector<Leak> leaks() const;

 private:
  struct Place {
    u64 bytes;
    Origin origin;
  };
  using Places = std::map<u64, Place>;

  u64 room_from(u64 offset, u64 span) const;
  void mark(u64 offset, u64 bytes, bool live);
  static Places::const_iterator around(const Places& places, u64 offset);

  u64 address_, limit_, size_;
  u8* host_ = nullptr;
  u32* live_ = nullptr;     // by 32 bytes, a bit for each that is of a block
  u32* written_ = nullptr;  // likewise for each that was written, see Buffer::written
  mutable std::mutex mutex_;
  Places blocks_, freed_;  // by their offset
  u64 used_ = 0, next_ = 0;
};

}  // namespace workbench::ptx
