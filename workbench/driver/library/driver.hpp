// The state of the simulated driver, and the frame in which every entry point runs.
//
// Every operation has run when the client's call returns, unless it is put off (late.hpp). That is
// one of the orders that streams and events allow, so results are those of a GPU, only without
// overlap. Time is simulated: every stream has a clock, which operations advance by their predicted
// time.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "activities.hpp"
#include "hooks.hpp"
#include "late.hpp"
#include "order.hpp"

namespace workbench::driver {

// Thrown by calls that fail; `entry` turns it into the call's result.
struct Refused {
  CUresult code;
  std::string why;
};

// Thrown by a launch that Ctrl-C ended. The call succeeds: the interpreter raises the exception in
// the client's caller.
struct Interrupted {};

// A call that was enqueued and ends when other processes have done their part (pending.cpp).
struct Pending;
using Pendings = std::vector<std::shared_ptr<Pending>>;

struct Context {
  u64 handle = 0;
  int device = 0;
  unsigned flags = 0;
  int users = 1;                  // changed by cuCtxAttach and cuCtxDetach
  CUresult fault = CUDA_SUCCESS;  // after a kernel failed, nothing else runs here
  std::string fault_text;
  bool timed = false;        // an event was recorded: times are predicted from now on
  double host_clock = 0;     // in seconds: operations enqueued now start no earlier
  double default_clock = 0;  // time at which the default stream is done
  std::map<int, std::size_t> limits;
  // By stream and attribute.
  std::map<std::pair<u64, int>, decltype(CUlaunchAttribute::value)> stream_attributes;
  bool heap_is_used = false;  // a kernel called malloc or free: its size is fixed
  int cache_config = 0, shared_config = 0;
  // The order of operations: of the default stream, of all blocking streams, and of all streams.
  Agent legacy = {};
  OrderClock blocking = {}, all = {};
  Pendings pending = {};     // of the default stream
  std::set<u64> peers = {};  // the contexts whose memory its kernels may access
};

struct Allocation;
struct Capture;
struct Pool;
// By captured stream, the number of operations that come before.
using Seen = std::map<u64, u64>;

struct Stream {
  Context* context;
  unsigned flags;
  double clock = 0;
  std::shared_ptr<Capture> capture = nullptr;  // operations become nodes of it instead of running
  Seen seen = {};
  std::vector<u64> last = {};  // the nodes that the next one waits for
  int priority = 0;
  Agent order = {};
  Pendings pending = {};
};

struct Event {
  Context* context;
  unsigned flags;
  bool recorded = false;
  double time = 0;
  // Set if it was recorded in a captured stream, after `seen`.
  std::shared_ptr<Capture> capture = nullptr;
  Seen seen = {};
  std::vector<u64> last = {};
  OrderClock order = {};
  Pendings pending = {};
  LatePlace late = {};
  int refused_queries = 0;  // of an allocator, while the event was pending
};

struct Module {
  u64 handle;
  Context* context;
};

struct Function {
  u64 module;
  std::string name;
  std::vector<u32> offsets, sizes, buffer_offsets;  // of each parameter
  HookFunction facts;
  u32 most_dynamic_shared;
};

class Call;
struct Graph;

// Parameters of a graph's nodes, by their kinds.
struct KernelNode {
  std::shared_ptr<Function> function;
  CUfunction handle;
  HookLaunch launch;
  std::vector<u8> bytes;        // the parameters
  std::vector<void*> pointers;  // addresses in `bytes`
  std::map<int, CUlaunchAttribute> attributes = {};
};
struct ChildNode {
  u64 handle;
  std::shared_ptr<Graph> graph;
};
struct EventNode {
  u64 handle;
  std::shared_ptr<Event> event;
};
struct FreeNode {
  CUdeviceptr address;
};
struct ConditionalNode {
  u64 condition;  // address of the condition's number
  int type;
  std::vector<ChildNode> bodies;
  std::shared_ptr<std::vector<CUgraph>> handles;  // of the bodies; the client reads them
};
using NodeParams = std::variant<std::monostate, std::shared_ptr<const KernelNode>, CUDA_MEMCPY3D,
                                CUDA_MEMSET_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, ChildNode,
                                EventNode, CUDA_MEM_ALLOC_NODE_PARAMS, FreeNode, ConditionalNode>;

// The operation of a node, and its parameters.
struct NodeWork {
  Operation run;
  NodeParams params = {};
};

struct GraphNode {
  CUgraphNodeType type;
  NodeWork work;
  std::vector<u64> after;
  bool enabled = true;  // in a graph that was instantiated
};

// A number that kernels set, and that selects the body that a conditional node runs.
struct Condition {
  std::shared_ptr<Allocation> number;
  u32 initial;
  bool assigned;  // set to `initial` whenever the graph is launched
};

// A client's object that lives while it is referenced. Its destructor function is called without
// the lock: see `entry`.
class UserObject {
 public:
  UserObject(CUhostFn end, void* data) : end_{{end, data}} {}
  UserObject(const UserObject&) = delete;
  ~UserObject();

 private:
  // A list of one element, which can be moved without an allocation.
  std::list<std::pair<CUhostFn, void*>> end_;
};

// The references that the client holds; graphs hold their own.
struct UserReferences {
  std::weak_ptr<UserObject> object;
  std::vector<std::shared_ptr<UserObject>> own;
};

struct Graph {
  Context* context;
  std::map<u64, GraphNode> nodes = {};  // by handle, which is the order in which they were added
  std::vector<std::shared_ptr<UserObject>> kept = {};
  std::map<u64, u64> origins = {};  // in a clone: its nodes, by those of the original
};

// An instantiated graph: its nodes at that time, in an order that their edges allow.
struct Executable {
  Context* context;
  u64 flags;
  std::vector<GraphNode> steps;
  std::unordered_map<u64, std::size_t> step_of;  // by the handle of the node
  std::vector<std::shared_ptr<UserObject>> kept;
  std::vector<u64> allocated = {}, conditions = {};  // by its nodes and those of inner graphs
};

struct Capture {
  u64 id, origin;  // the stream in which it began
  unsigned mode;
  std::string invalid;  // reason why it failed; empty if it did not
  u64 handle;           // of the graph
  bool owned = true;    // the graph is deleted if the capture fails
  std::shared_ptr<Graph> graph;
  Seen enqueued;  // operations of every participating stream
};

enum class Where : u8 { device, variable, managed, pinned, registered };

// Where the memory in a finding comes from, as numbers of workbench.driver; 0 is unknown.
struct Origin {
  u64 made = 0;   // place where the host allocated it, and the kind of allocation
  u64 used = 0;   // latest launch that had it as an argument
  u64 wrote = 0;  // latest launch that wrote bytes which were unwritten before
  // Whether some unwritten bytes were copied from memory that the launch `used` had as an argument.
  bool copied = false;
};

// A part of an allocation.
struct Part {
  u64 bytes;
  Origin origin = {};
};

// The parts of an allocation that a caching allocator has handed out, by address, and the latest
// freed ones.
struct Blocks {
  std::map<u64, Part> live, freed;
};

struct Allocation {
  u64 address, size;
  u8* host;
  Where where;
  unsigned flags;
  Context* context;
  u64 module = 0;  // of a variable
  std::shared_ptr<Pool> pool = nullptr;
  bool of_graph = false;          // a node of a graph made it
  u64 number = 0;                 // counts all allocations of the process
  std::shared_ptr<void> storage;  // another thread's launch may hold it longer
  // A word for 32 bytes, with a bit for each byte that was written; empty if all count as written.
  std::vector<u32> written = {};
  // The driver could not follow writes, so all bytes count as written.
  bool all_written = false;
  std::shared_ptr<Blocks> blocks = nullptr;  // set if a client's allocator divides it
  Origin origin = {};
  u8* of_client = nullptr;  // the client's mapping, if its accesses are watched
  bool on_host() const {
    return where == Where::pinned || where == Where::registered || where == Where::managed;
  }
  bool counts() const { return where == Where::device || where == Where::managed; }
};

// The buffers of one context, kept until an allocation is made or freed.
struct Snapshot {
  u64 generation;
  std::vector<HookBuffer> rows;
  std::vector<std::shared_ptr<Allocation>> held;
};

struct Primary {
  std::shared_ptr<Context> context;
  int users = 0;
  unsigned flags = 0;
  u64 used_bytes = 0;                   // of the device's memory, in all contexts
  u64 graph_bytes = 0, graph_high = 0;  // allocated by graphs' nodes, now and at most
  u64 default_pool = 0, pool = 0;       // cuMemAllocAsync uses `pool`
};

// A pool of cuMemAllocAsync. Freed memory is free at once: a pool keeps none for the next
// allocation.
struct Pool {
  u64 handle;
  int device;
  Where where;   // kind of its allocations
  bool owned;    // created by a client, which may destroy it
  u64 most = 0;  // bytes; 0: no bound
  u64 used = 0, high = 0;
  std::map<int, u64> attributes = {};
  std::set<int> peers = {};  // other devices whose kernels may access its memory
};

struct State {
  std::mutex mutex;
  bool started = false, initialised = false;
  HookDevice device{};
  std::string name, host_blas;
  std::map<int, int> attributes;
  Hooks hooks{};
  bool closed = false;  // Python is ending: no hook may be called any more

  u64 next_handle = 0;
  std::unordered_map<u64, std::shared_ptr<Context>> contexts;
  std::vector<Primary> primaries;  // of every device
  std::unordered_map<u64, std::shared_ptr<Stream>> streams;
  std::unordered_map<u64, std::shared_ptr<Event>> events;
  std::unordered_map<u64, std::shared_ptr<Module>> modules;
  std::unordered_map<u64, std::shared_ptr<Function>> functions;
  std::unordered_map<u64, std::shared_ptr<Graph>> graphs;
  std::unordered_map<u64, std::shared_ptr<Executable>> executables;
  std::unordered_map<u64, std::shared_ptr<Pool>> pools;
  u64 pinned_pool = 0,
      // Host pools, which exist from the start.
      managed_pool = 0;
  std::unordered_map<u64, std::shared_ptr<UserReferences>> user_objects;
  std::vector<std::shared_ptr<Capture>> captures;          // captures in progress
  std::vector<u64> unloaded;                               // modules whose unload hook is pending
  std::map<u64, std::shared_ptr<Allocation>> allocations;  // by address
  std::map<u64, Part> freed;                               // the latest freed ones, by address
  std::unordered_map<u64, Condition> conditions;           // by the address of their numbers
  u64 next_address = 0, generation = 1, allocation_count = 0;
  // For checks of uninitialised reads, and for the names of memory in findings.
  std::atomic<bool> follows_writes = false;
  std::vector<HookMemory> left;         // freed memory that a launch wrote in part
  ActivityFollower follower = nullptr;  // set by a profiler
  std::unordered_map<const Context*, std::shared_ptr<Snapshot>> snapshots;
};

State& state();

// One call of a client, with the lock held.
class Call {
 public:
  explicit Call(std::unique_lock<std::mutex>& held) : lock(held) {}
  // The calling thread's context. Refuses without one, and after a fault in it.
  const std::shared_ptr<Context>& context();
  // The context even after a fault, for calls that free or only query it.
  const std::shared_ptr<Context>& even_failed_context();
  std::unique_lock<std::mutex>& lock;

 private:
  std::shared_ptr<Context> context_;
};

// ---- the calling thread (threads.cpp) ----

struct ThreadState {
  std::vector<u64> contexts;  // a stack of handles; 0 stands for none
  unsigned capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool null_is_per_thread = false;  // null is the thread's own stream, not the shared one
  bool runtime_tells_of_refusals = false;
  CUresult found = CUDA_SUCCESS;    // error of a launch that checks let go on, until it is returned
  std::map<u64, u64> streams;       // the thread's own, by context
  Caller caller = Caller::unknown;  // code that makes its calls
  Agent* branch = nullptr;          // of a graph that it runs
  const HostFunction* host_function = nullptr;  // that it runs in the order of a stream
  // By code: a string lives until the next error of its kind.
  std::unordered_map<CUresult, std::string> told;
  std::string latest;  // message of the latest failing call
};
// Null if there is no memory for it.
ThreadState* thread_state() noexcept;
ThreadState& needed_thread_state();
std::vector<u64>& context_stack();

std::shared_ptr<Context> find_context(CUcontext handle);
u64 new_handle();
void check_device(CUdevice device);

template <class T>
const std::shared_ptr<T>& find_handle(const std::unordered_map<u64, std::shared_ptr<T>>& table,
                                      const void* handle, const char* kind) {
  const auto found = table.find(reinterpret_cast<u64>(handle));
  if (found == table.end()) {
    throw Refused{CUDA_ERROR_INVALID_HANDLE,
                  std::string("no such ") + kind + ": it was never created, or is destroyed"};
  }
  return found->second;
}

template <class T>
T& needed(T* pointer, const char* name) {
  if (!pointer) throw Refused{CUDA_ERROR_INVALID_VALUE, std::string(name) + " is a null pointer"};
  return *pointer;
}

// Results of calls, and their messages (errors.cpp).
CUresult remember(CUresult code, const char* why, const char* more = "") noexcept;
bool in_forked_child() noexcept;

// ---- memory (memory.cpp) ----

// The allocation that holds all `bytes` from `address` on, or null.
std::shared_ptr<Allocation> find_allocation(u64 address, u64 bytes);
// The allocation that holds all `bytes`; refuses with a description of the address without one.
std::shared_ptr<Allocation> need_allocation(u64 address, u64 bytes);
// Describes an address outside all allocations: it is freed memory, or past the end of one.
std::string describe_address(u64 address, u64 bytes);
// Whether the host has memory at the first and the last byte, so that a wrong address is refused
// instead of ending the process. A device address never counts as host memory, even if something
// such as a sanitizer's shadow is mapped there.
bool mapped(u64 address, u64 bytes);
// Whether a range that is in no single allocation overlaps one. Adjacent registered ranges may hold
// it together.
bool held_in_part(u64 address, u64 bytes);
// Describes an address of a divided allocation that is in none of its blocks.
std::string describe_block(const Allocation& allocation, u64 address);
// Whether kernels of a context may access an allocation (peers.cpp).
bool may_access(const Context& context, const Allocation& allocation);
// Describes an allocation that they may not access, and what to do.
std::string describe_foreign(const Context& context, const Allocation& allocation);
u64 reserve_addresses(u64 bytes);
// Whether any allocation has some of these addresses.
bool overlaps(u64 address, u64 bytes);
// The address that a process has to reserve next because it repeats a log; 0 if it may choose
// (recording.cpp).
u64 prescribed_address();
void add_allocation(const std::shared_ptr<Allocation>& allocation);
void drop_allocation(u64 address);
// Allocates memory, at a reserved address if one is given.
std::shared_ptr<Allocation> allocate(Call& call, u64 bytes, Where where, unsigned flags,
                                     u64 address = 0);
// The pool that a device has at the start.
u64 default_pool(CUdevice device);
void free_context_memory(const Context* context);
std::shared_ptr<Snapshot> snapshot(const Context* context);

// ---- written bytes (written.cpp) ----

void begin_unwritten(Allocation& made);
void mark_written(Allocation& target, u64 offset, u64 bytes);
void mark_unwritten(Allocation& target, u64 offset, u64 bytes);
constexpr u64 kNone = ~u64{0};
// The offset of the first byte of a range that was never written, or kNone.
u64 first_unwritten(const Allocation& source, u64 offset, u64 bytes);

// Bytes of a range that were never written, and the runs that they form.
struct Unwritten {
  u64 bytes = 0, first = kNone, runs = 0, longest = 0;

  void add(u64 begin, u64 size);

 private:
  u64 end_ = 0, run_ = 0;
};
// Adds the unwritten bytes of a range; offsets count from the allocation's begin.
void find_unwritten(const Allocation& source, u64 offset, u64 bytes, Unwritten& found);
// Marks the copied bytes as unwritten where `source` is; all are written if `source` is null.
void mark_copied(Allocation& target, u64 to, const Allocation* source, u64 from, u64 bytes);

// ---- origins of memory, for findings (origins.cpp) ----

// Return addresses of the client's call, innermost first.
struct Frames {
  u64 addresses[16];
  u32 count = 0;
};
Frames client_frames();
// Asks workbench.driver for the number of the place where the client allocates. Unlocks meanwhile.
void record_origin(Call& call, Allocation& made);
// Notes at the target of a copy that its unwritten bytes came from other memory.
void copy_origin(u64 to, u64 from);
// Whether a launch had the memory at an address as an argument.
bool has_been_used(u64 address);
// Keeps a note of freed memory that a launch wrote in part.
void keep_partly_written(const Allocation& allocation, u64 address, const Part& part);
// Reports bytes that a copy to the host reads although they were never written. Unlocks meanwhile.
void tell_read(Call& call, const Allocation& source, const Unwritten& found, u64 bytes);
void tell_read(Call& call, const HookRead& read);

// ---- time (streams.cpp) ----

// Advances the clock of `stream` by an operation. Refuses a stream of another context.
void advance(Context& context, CUstream stream, double seconds);
void check_stream(const Context& context, CUstream stream);
// The context of a stream; of a default stream the calling thread's. Refuses after a fault in it.
std::shared_ptr<Context> context_of(Call& call, CUstream stream);
// The number of a handle's stream; 0 for the default stream that all threads share.
u64 stream_number(const Context& context, CUstream handle);
void synchronise(Context& context);
// The stream's capture, or null if it runs its operations. Refuses an invalidated capture.
std::shared_ptr<Capture> capture_of(const Context& context, CUstream stream);

// ---- calls that wait for other processes (pending.cpp) ----

bool any_pending() noexcept;
void add_pending(Context& context, CUstream stream, const std::shared_ptr<Pending>& made);
// The pending calls that an operation on the stream comes after.
Pendings pending_before(const Context& context, CUstream stream);
// Waits for these calls, and unlocks meanwhile. Refuses if one has failed.
void settle(Call& call, const Pendings& all);
void settle(Call& call, const Context& context, CUstream stream);
void settle_all(Call& call, const Context& context);
// Refuses with CUDA_ERROR_NOT_READY if one of these calls has not ended.
void need_ended(Call& call, const Pendings& all);

// ---- a profiler's activities (activities.cpp) ----

// Whether the times of operations are needed.
bool is_timed(const Context& context);
// Reports a finished kernel to a profiler; `launch` and `facts` are null for one on the host.
void tell_activity(const Context& context, CUstream stream, const char* name, double seconds,
                   const HookLaunch* launch = nullptr, const HookFunction* facts = nullptr);

// ---- captures and graphs (captures.cpp, graphs.cpp) ----

// Adds `work` to the capture of `stream`; false if the stream is not captured.
bool captured(Call& call, CUstream stream, CUgraphNodeType type, NodeWork work);
// For calls that wait for the device or change its memory: they invalidate captures in progress.
void outside_captures(const char* what);

// The work of nodes that a client adds to a graph without a capture.
NodeWork kernel_work(Call& call, const CUDA_KERNEL_NODE_PARAMS& given);
NodeWork kernel_work(std::shared_ptr<const KernelNode> node);
// `recorded`: the operation's number, for findings.
NodeWork copy_work(const CUDA_MEMCPY3D& given, u32 recorded);
NodeWork fill_work(const CUDA_MEMSET_NODE_PARAMS& given);
NodeWork host_work(CUhostFn function, void* data);
NodeWork record_work(CUevent event);
NodeWork wait_work(CUevent event);
NodeWork allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS& given);
NodeWork free_work(CUdeviceptr address);

// ---- modules (modules.cpp) ----

// Reports to workbench.driver a launch that ended with an error before it began (refusals.cpp).
// Returns the result. Call it without the lock.
CUresult told_of_refusal(CUfunction function, const CUlaunchConfig& config,
                         CUresult result) noexcept;

constexpr u64 kWhySize = 4096;
const Hooks& hooks();

// Calls a hook, without the lock, until it sets an answer; then passes a Ctrl-C on to the
// interpreter.
template <class... Parameters, class... Arguments>
void ask(Call& call, void (*hook)(Parameters...), Arguments... arguments) {
  const Hooks& to = hooks();
  char why[kWhySize] = "";
  CUresult answer = kInterrupted;
  bool interrupted = false;
  call.lock.unlock();
  for (; answer == kInterrupted; interrupted |= answer == kInterrupted)
    hook(arguments..., &answer, why, sizeof why);
  if (interrupted) to.interrupt();
  call.lock.lock();
  if (answer) throw Refused{answer, why};
}

u32 blocks_per_multiprocessor(Call& call, const Function& function, u64 threads,
                              u32 dynamic_shared);
// Refuses an image whose first bytes are not those of PTX.
void check_image(const char* image);
// Whether the image is machine code.
bool is_machine_code(const char* image);
// Whether machine code contains its PTX; if so, sets `ptx`.
bool unpack_machine_code(const char* image, std::string& ptx);
// Whether the image is a fat binary; if so, sets `ptx` to its newest PTX that the device runs, or
// else to that inside its machine code for the device. Refuses a fat binary without any PTX.
bool unpack_fat_binary(const char* image, std::string& ptx);
void unload_module(u64 handle);

// A client's buffers for error messages: options of cuModuleLoadDataEx and cuLinkCreate.
class Logs {
 public:
  Logs(unsigned count, const int* options, void** values);
  // Writes the latest message, if `result` is an error, and its length; returns `result`.
  CUresult written(CUresult result) const;

 private:
  char* text_ = nullptr;
  u64 room_ = 0;
  void** size_ = nullptr;
  void** info_size_ = nullptr;
};

// Starts Python, and with it the driver, in a process that `workbench run` started
// (interpreter.cpp). Call it without the lock.
void start_interpreter();
void watch_forks();
// Calls the destructor functions of user objects, without the lock, because they may wait for the
// interpreter.
void call_ends();

// `facts`: a call that only queries devices, which a forked process may do.
enum class Needs : u8 { nothing, initialised, facts };

// The frame of every entry point: it never throws, never blocks for ever, and keeps the message.
template <class Body>
CUresult entry(Needs needs, Body&& body) noexcept {
  if (in_forked_child() && needs != Needs::facts) {
    return remember(CUDA_ERROR_NOT_INITIALIZED,
                    "this process was forked after cuInit; start it with spawn instead");
  }
  try {
    std::unique_lock lock(state().mutex);
    if (needs != Needs::nothing && !state().initialised) {
      throw Refused{CUDA_ERROR_NOT_INITIALIZED, "cuInit comes first"};
    }
    Call call(lock);
    body(call);
    if (lock.owns_lock()) lock.unlock();
    call_ends();
    return CUDA_SUCCESS;
  } catch (const Refused& refused) {
    return remember(refused.code, refused.why.c_str());
  } catch (const Interrupted&) {
    return CUDA_SUCCESS;
  } catch (const std::bad_alloc&) {
    return remember(CUDA_ERROR_OUT_OF_MEMORY, "the host has no memory left");
  } catch (const std::exception& error) {
    return remember(CUDA_ERROR_UNKNOWN, error.what());
  }
}

template <class Body>
CUresult entry(Body&& body) noexcept {
  return entry(Needs::initialised, std::forward<Body>(body));
}

// The frame of functions that workbench.driver calls: returns the body's answer, or `otherwise` if
// it throws.
template <class Body, class Answer>
Answer answer_or(Answer otherwise, Body&& body) noexcept {
  try {
    std::lock_guard lock(state().mutex);
    return body();
  } catch (...) {
    return otherwise;
  }
}

}  // namespace workbench::driver

// The message of the thread's latest failing call.
extern "C" const char* workbench_driver_latest_error();
