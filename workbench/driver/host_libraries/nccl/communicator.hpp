// Communicators, by their handles, and groups of calls.
#pragma once
#include <map>
#include <mutex>
#include <optional>

#include "meeting.hpp"

using CUcontext = void*;

namespace workbench::nccl {

// An operator that multiplies a rank's elements by a number before the sum.
struct Multiple {
  int type;
  double factor;
};

struct Communicator {
  Communicator(const std::string& folder, int ranks, int rank);

  int device;
  CUcontext context;
  Meeting meeting;
  std::string name = {};  // as the client calls it, or ""
  std::mutex mutex = {};
  std::map<int, Multiple> operators = {};

  // "rank 0 of NAME", for messages
  std::string self() const;
};
using Handle = struct HandleOfCommunicator*;

// Throws Failed for a handle of none, and after the communicator's end; the message names it.
std::shared_ptr<Communicator> communicator(Handle handle);

enum class Kind : u8 {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  send,
  receive
};

// One call. Counts are in elements, as the function of NCCL has them; `peer` is the root of a
// collective, or the other rank of a message.
struct Collective {
  Kind kind;
  const void* from;
  void* to;
  u64 count;
  int type;
  int operation = kSum;
  int peer = -1;
};

// Runs `body` as a call of the library with this name, and keeps the message of its error.
int call(const char* name, const std::function<void()>& body) noexcept;
// Within a group the rest of a call runs at its end: at once outside of one.
void at_group_end(std::function<void()> rest);
// The same of a collective or message; those of one stream are one operation of it.
void enqueue(const char* name, Handle handle, const Collective& what, CUstream stream);

}  // namespace workbench::nccl
