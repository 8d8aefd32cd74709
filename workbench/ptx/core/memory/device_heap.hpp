// The heap of malloc and free inside kernels. It outlives launches, because one kernel may free the
// blocks of another. Blocks have exactly the requested size, with gaps between them, and freed
// memory is reused only after the whole heap has been used once, so that a stale address is
// noticed.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "types.hpp"

namespace workbench::ptx {

class DeviceHeap {
 public:
  static constexpr u64 kSpan = 4;  // the heap's range of addresses, in multiples of its limit

  // The origin of a block: the caller's number for the kernel, and the instruction.
  struct Origin {
    u64 kernel;
    s32 pc;
  };
  struct Leak {
    Origin origin;
    u64 blocks, bytes;
  };

  // Takes addresses from `address` on, and allows `limit` bytes in blocks of multiples of 16.
  // Throws std::bad_alloc.
  DeviceHeap(u64 address, u64 limit);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;

  u64 address() const { return address_; }
  u64 size() const { return size_; }
  u8* host() const { return host_; }
  u32* written() const { return written_; }

  // Returns the address of a new block; 0 if there is no room. A block of 0 bytes has an address,
  // too.
  u64 take(u64 bytes, Origin origin);
  // Returns false if no block begins at the address.
  bool give_back(u64 address);
  // Whether all the bytes belong to one live block.
  bool holds(u64 address, u64 bytes) const;
  // Describes an address that a kernel must not access.
  std::string describe(u64 address) const;
  // The live blocks, by origin.
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
  u32* live_ = nullptr;  // by 32 bytes, a bit for each byte of a live block
  // By 32 bytes, a bit for each byte that was written, see Buffer::written.
  u32* written_ = nullptr;
  mutable std::mutex mutex_;
  Places blocks_, freed_;  // by their offset
  u64 used_ = 0, next_ = 0;
};

}  // namespace workbench::ptx
