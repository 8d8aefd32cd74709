// The order of operations, for findings: which of them come before which (vector clocks), and who
// accessed a byte last. Followed while checks follow written bytes.
//
// An agent is a stream, or a branch of a graph while it runs. Its operations are counted. A clock
// holds, for each agent, how many of its operations have ended. An operation comes before another
// one if the other's clock includes it. Threads of the host share one clock: what one of them has
// waited for, the others are taken to know, because nobody sees their locks and queues.
#pragma once
#include <algorithm>
#include <vector>

#include "abi.hpp"

namespace workbench::driver {

class Call;
struct Context;
struct Allocation;
struct Executable;

class OrderClock {
 public:
  u32 at(u32 agent) const { return agent < times_.size() ? times_[agent] : 0; }
  void set(u32 agent, u32 time) {
    if (agent >= times_.size()) times_.resize(agent + 1);
    times_[agent] = time;
  }
  void join(const OrderClock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i)
      times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<u32> times_;
};

struct Agent {
  u32 number = 0;  // 0: it has done nothing yet
  OrderClock clock = {};
  std::vector<u32> branches = {};  // numbers for the branches of graphs that a stream runs
};

// The code that makes a thread's calls.
enum class Caller : u8 { unknown, python, native };

// How an operation accesses bytes. Strong accesses (atomics) do not race with each other. Chosen
// ones access some elements of the range, by indices: two of them may be apart.
enum AccessKind : u8 { kReads = 1, kWrites = 2, kStrong = 4, kChosen = 8 };

// An operation that accessed bytes.
struct Deed {
  u32 agent = 0, time = 0;  // agent 0: none
  u64 stream = 0;
  u32 what = 0;  // number of workbench.driver for its name and line
  int pc = -1;   // instruction of a kernel
  u8 kind = 0;
};

// A range of bytes that an operation accesses.
struct AccessedRange {
  u64 begin, end;
  int pc = -1;
  u8 kind;
};

// One operation in the order of its stream. It begins when it is made: at most one at a time for a
// thread. `end` reports what was found, and unlocks meanwhile.
class Step {
 public:
  // Asks workbench.driver for the number of the operation's name and line, and unlocks meanwhile.
  Step(Call& call, Context& context, CUstream stream, const char* name);
  // `what`: the number, known already.
  Step(Call& call, Context& context, CUstream stream, u32 what);
  Step(const Step&) = delete;

  void access(const AccessedRange& range);
  void reads(u64 address, u64 bytes) { access({address, address + bytes, -1, kReads}); }
  void writes(u64 address, u64 bytes) { access({address, address + bytes, -1, kWrites}); }
  // The host goes on when the operation has ended; or when all before it have.
  void wait();
  void wait_for_earlier();
  void end();

 private:
  void begin(Context& context, CUstream stream);

  Call& call_;
  bool on_;
  Deed deed_ = {};
  OrderClock before_ = {}, after_ = {};
};

bool follows_order();
// The number of an operation's name and line, for `tell_gone`; 0 if nothing is followed.
u32 order_recorded(Call& call, const char* name);
// Reports that a graph runs an operation, recorded under this number, whose memory is gone.
void tell_gone(Call& call, u32 recorded, const char* what);
// The return addresses of a client's call, innermost first, if no line of Python made it; else
// none.
std::vector<u64> native_frames(Call& call);
// Events: recorded on a stream, waited for by one, and by the host.
void order_record(Context& context, OrderClock& event, CUstream stream);
void order_wait(Context& context, const OrderClock& event, CUstream stream);
// What the default stream of `later` is given from here on comes after all of `earlier`.
void order_across(Context& earlier, Context& later);
// The host has waited for a clock. `caller`: the address that a query of an event returns to; an
// allocator's queries only tell when its blocks are free.
void order_host(const OrderClock& clock);
void order_query(const OrderClock& clock, const void* caller);
// Whether a query of an event is torch's caching allocator's, or that of its page-locked memory.
bool an_allocator_asks(const void* caller);
void order_synchronise(Context& context);
void order_synchronise(Context& context, CUstream stream);

// The memory is gone: its accesses are forgotten.
void order_forget(u64 address, u64 bytes);
// A caching allocator takes a block back; later it may hand the memory out again.
void order_freed(u64 address, u64 bytes);
void order_free_again(u64 address, u64 bytes);

// While a function of the host runs in the order of a stream, the host knows what the stream does.
class HostFunction {
 public:
  HostFunction(Context& of, CUstream on);
  ~HostFunction();
  HostFunction(const HostFunction&) = delete;

  const OrderClock& clock() const { return clock_; }
  Context& context;
  CUstream stream;

 private:
  bool on_;
  OrderClock clock_ = {};
  const HostFunction* outer_ = nullptr;
};

// The order of a graph's nodes while a stream runs it: each comes after those that it waits for. A
// node goes on with the branch of one of these, or begins a branch of its own. The nodes of a graph
// inside a node count in the order in which they run.
class GraphOrder {
 public:
  GraphOrder(Context& context, CUstream stream, const Executable& graph);
  ~GraphOrder();
  GraphOrder(const GraphOrder&) = delete;

  void begin(std::size_t step);
  void end(std::size_t step);

 private:
  struct Done {
    OrderClock clock = {};
    u32 branch = 0;
    bool continued = false;
  };

  const Executable& graph_;
  bool on_;
  Agent* stream_ = nullptr;
  std::vector<Done> done_ = {};
  OrderClock start_ = {};
  bool started_ = false;  // the stream's own branch has its first node
  std::size_t branches_ = 0;
  Agent branch_ = {};
};

// ---- accesses of the host (host_watch.cpp) ----

// Two mappings of the same memory: the client's, of which pages can be protected, and the driver's.
struct SharedPages {
  u8 *of_client, *of_driver;
};
bool share_pages(u64 bytes, SharedPages& out);
void unshare_pages(const SharedPages& pages, u64 bytes);
// Protects the client's pages of a range until the host knows the deed.
void watch_host(const Allocation& allocation, const AccessedRange& range, const Deed& deed);
// Ends the watch of deeds that a clock includes.
void unwatch_host(const OrderClock& known);
void unwatch_host(u64 address);
// The clock of the host, or that of the stream whose function the thread runs.
const OrderClock& host_clock();

}  // namespace workbench::driver
