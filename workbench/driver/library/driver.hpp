// The state of the simulated driver, and the frame in which every entry point runs.
//
// Everything that a client enqueues has happened when its call returns: that is one of the orders
// which streams and events allow, so results are those of a GPU, only without overlap. Time is kept
// apart: every stream has a clock that operations move on by their predicted time.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "activities.hpp"
#include "hooks.hpp"

namespace workbench::driver {

// Thrown by whatever cannot be done; `entry` makes it the call's result.
struct Refused {
  CUresult code;
  std::string why;
};

// Thrown by a launch that Ctrl-C ended. The call succeeds: the exception comes from the
// interpreter, to the client's caller.
struct Interrupted {};

struct Context {
  u64 handle = 0;
  int device = 0;
  unsigned flags = 0;
  int users = 1;                  // cuCtxAttach and cuCtxDetach
  CUresult fault = CUDA_SUCCESS;  // once a kernel failed, nothing else runs here
  std::string fault_text;
  bool timed = false;        // an event was recorded: from now on times are predicted
  double host_clock = 0;     // seconds: what is enqueued now starts no earlier
  double default_clock = 0;  // when the default stream is done
  std::map<int, std::size_t> limits;
  // By stream and attribute.
  std::map<std::pair<u64, int>, decltype(CUlaunchAttribute::value)> stream_attributes;
  bool heap_is_used = false;  // a kernel called malloc or free: its size stays
  int cache_config = 0, shared_config = 0;
};

struct Allocation;
struct Capture;
struct Pool;
// How many operations of each captured stream come before.
using Seen = std::map<u64, u64>;

struct Stream {
  Context* context;
  unsigned flags;
  double clock = 0;
  std::shared_ptr<Capture> capture =
      nullptr;  // what is enqueued becomes a node of it instead of running
  Seen seen = {};
  std::vector<u64> last = {};  // the nodes that the next one comes after
  int priority = 0;
};

struct Event {
  Context* context;
  unsigned flags;
  bool recorded = false;
  double time = 0;
  std::shared_ptr<Capture> capture =
      nullptr;  // it was recorded in a captured stream, after what is `seen`
  Seen seen = {};
  std::vector<u64> last = {};
};

struct Module {
  u64 handle;
  Context* context;
};

struct Function {
  u64 module;
  std::string name;
  std::vector<u32> offsets, sizes, buffer_offsets;  // of the parameters
  HookFunction facts;
  u32 most_dynamic_shared;
};

class Call;
// Runs an operation on a stream.
using Operation = std::function<void(Call&, CUstream)>;

struct Graph;

// What nodes of graphs were made from, by their kinds.
struct KernelNode {
  std::shared_ptr<Function> function;
  CUfunction handle;
  HookLaunch launch;
  std::vector<u8> bytes;        // the parameters
  std::vector<void*> pointers;  // into them
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
  u64 condition;  // the address of its number
  int type;
  std::vector<ChildNode> bodies;
  std::shared_ptr<std::vector<CUgraph>> handles;  // of the bodies, which the client reads
};
using NodeParams = std::variant<std::monostate, std::shared_ptr<const KernelNode>, CUDA_MEMCPY3D,
                                CUDA_MEMSET_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, ChildNode,
                                EventNode, CUDA_MEM_ALLOC_NODE_PARAMS, FreeNode, ConditionalNode>;

// What a node does, and what it was made from.
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

// A number that a kernel sets, and that decides what a node of a graph runs.
struct Condition {
  std::shared_ptr<Allocation> number;
  u32 initial;
  bool assigned;  // whenever the graph is launched
};

// Something of a client's that lives as long as somebody refers to it. Its end comes without the
// lock: see `entry`.
class UserObject {
 public:
  UserObject(CUhostFn end, void* data) : end_{{end, data}} {}
  UserObject(const UserObject&) = delete;
  ~UserObject();

 private:
  std::list<std::pair<CUhostFn, void*>> end_;  // one, which needs no memory when it comes
};

// The client's own references; graphs have theirs.
struct UserReferences {
  std::weak_ptr<UserObject> object;
  std::vector<std::shared_ptr<UserObject>> own;
};

struct Graph {
  Context* context;
  std::map<u64, GraphNode> nodes = {};  // by handle: in the order in which they were added
  std::vector<std::shared_ptr<UserObject>> kept = {};
  std::map<u64, u64> origins = {};  // of a clone: its nodes by those they were copied from
};

// A graph as it was when it was instantiated, its nodes in one of the orders that they allow.
struct Executable {
  Context* context;
  u64 flags;
  std::vector<GraphNode> steps;
  std::unordered_map<u64, std::size_t> step_of;  // by the handle of the node
  std::vector<std::shared_ptr<UserObject>> kept;
  std::vector<u64> allocated = {}, conditions = {};  // by its nodes and those of graphs inside
};

struct Capture {
  u64 id, origin;  // the stream in which it began
  unsigned mode;
  std::string invalid;  // why nothing will come of it
  u64 handle;           // of the graph
  bool owned = true;    // the graph, which goes where nothing comes of the capture
  std::shared_ptr<Graph> graph;
  Seen enqueued;  // by every stream that takes part
};

enum class Where : u8 { device, variable, managed, pinned, registered };

// The parts of an allocation that a caching allocator has given out: sizes by address, and those
// of the latest that it took back.
struct Blocks {
  std::map<u64, u64> live, freed;
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
  std::shared_ptr<void> storage;  // a launch in another thread may still hold it when it is freed
  // By 32 bytes, a bit for each that was written; empty where all of it counts as written.
  std::vector<u32> written = {};
  bool all_written = false;  // what began unwritten has been written where nobody saw it
  std::shared_ptr<Blocks> blocks = nullptr;  // where an allocator of the client divides it
  bool on_host() const {
    return where == Where::pinned || where == Where::registered || where == Where::managed;
  }
  bool counts() const { return where == Where::device || where == Where::managed; }
};

// The buffers of one context, kept until an allocation comes or goes.
struct Snapshot {
  u64 generation;
  std::vector<HookBuffer> rows;
  std::vector<std::shared_ptr<Allocation>> held;
};

struct Primary {
  std::shared_ptr<Context> context;
  int users = 0;
  unsigned flags = 0;
  u64 used_bytes = 0;                   // of the device's memory, in whichever context
  u64 graph_bytes = 0, graph_high = 0;  // of these, what nodes of graphs allocated; and at most
  u64 default_pool = 0, pool = 0;       // the latter is what cuMemAllocAsync takes
};

// Where cuMemAllocAsync takes from. What is freed is free at once: nothing is kept for the next
// allocation.
struct Pool {
  u64 handle;
  int device;
  Where where;   // its allocations
  bool owned;    // by a client, which may destroy it
  u64 most = 0;  // bytes; 0: no bound
  u64 used = 0, high = 0;
  std::map<int, u64> attributes = {};
};

struct State {
  std::mutex mutex;
  bool started = false, initialised = false;
  HookDevice device{};
  std::string name, host_blas;
  std::map<int, int> attributes;
  Hooks hooks{};
  bool closed = false;  // the interpreter is going: no hook may be called any more

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
      managed_pool = 0;  // those for the host's memory that are there from the start
  std::unordered_map<u64, std::shared_ptr<UserReferences>> user_objects;
  std::vector<std::shared_ptr<Capture>> captures;  // that are under way
  std::vector<u64> unloaded;                       // modules that the hooks have yet to be told of
  std::map<u64, std::shared_ptr<Allocation>> allocations;  // by address
  std::map<u64, u64> freed;                       // address and size of the latest that are gone
  std::unordered_map<u64, Condition> conditions;  // by the address of their numbers
  u64 next_address = 0, generation = 1, allocation_count = 0;
  bool follows_writes = false;  // checks want to know what was written since it was allocated
  ActivityFollower follower = nullptr;  // a profiler's
  std::unordered_map<const Context*, std::shared_ptr<Snapshot>> snapshots;
};

State& state();

// One call of a client, with the lock held.
class Call {
 public:
  explicit Call(std::unique_lock<std::mutex>& held) : lock(held) {}
  // The calling thread's context. Refuses where there is none, and after a fault in it.
  const std::shared_ptr<Context>& context();
  // The same even after a fault: for what frees, and for what only asks about the context.
  const std::shared_ptr<Context>& even_failed_context();
  std::unique_lock<std::mutex>& lock;

 private:
  std::shared_ptr<Context> context_;
};

// ---- the calling thread (threads.cpp) ----

struct ThreadState {
  std::vector<u64> contexts;  // a stack of handles; 0 stands for none
  unsigned capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool null_is_per_thread = false;  // as a stream; the one that all threads share otherwise
  std::map<u64, u64> streams;       // the thread's own, by context
  std::unordered_map<CUresult, std::string>
      told;            // by code, so that a string lives until the next error of its kind
  std::string latest;  // what the latest failing call said
};
// Null where there is no memory for it.
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

// Results of calls, and the words for them (errors.cpp).
CUresult remember(CUresult code, const char* why, const char* more = "") noexcept;
bool in_forked_child() noexcept;

// ---- memory (memory.cpp) ----

// The allocation that holds all `bytes` from `address` on; null where there is none.
std::shared_ptr<Allocation> find_allocation(u64 address, u64 bytes);
// The same, refused with what is wrong about the address.
std::shared_ptr<Allocation> need_allocation(u64 address, u64 bytes);
// What lies at an address where nothing is: freed memory, or the end of which allocation.
std::string describe_address(u64 address, u64 bytes);
// Whether this process has something at the first and the last byte: a wrong address is refused
// instead of ending it.
bool mapped(u64 address, u64 bytes);
// What lies at an address of a divided allocation that is in none of its blocks.
std::string describe_block(const Allocation& allocation, u64 address);
u64 reserve_addresses(u64 bytes);
void add_allocation(const std::shared_ptr<Allocation>& allocation);
void drop_allocation(u64 address);
// At an address that was reserved, if one is given.
std::shared_ptr<Allocation> allocate(Call& call, u64 bytes, Where where, unsigned flags,
                                     u64 address = 0);
// The pool that a device began with.
u64 default_pool(CUdevice device);
void free_context_memory(const Context* context);
std::shared_ptr<Snapshot> snapshot(const Context* context);

// ---- what was written (written.cpp) ----

void begin_unwritten(Allocation& made);
void mark_written(Allocation& target, u64 offset, u64 bytes);
void mark_unwritten(Allocation& target, u64 offset, u64 bytes);
constexpr u64 kNone = ~u64{0};
// The offset of the first byte of a range that nobody wrote; kNone where there is none.
u64 first_unwritten(const Allocation& source, u64 offset, u64 bytes);
// A copy hands on what its source has of unwritten bytes; `source` is null where all was written.
void mark_copied(Allocation& target, u64 to, const Allocation* source, u64 from, u64 bytes);

// ---- time (streams.cpp) ----

// Moves the clock of `stream` on by an operation. Refuses a stream that is not of the context.
void advance(Context& context, CUstream stream, double seconds);
void check_stream(const Context& context, CUstream stream);
// By which the stream of a handle is known; 0 for the default stream that all threads share.
u64 stream_number(const Context& context, CUstream handle);
void synchronise(Context& context);
// The stream's capture; null where it runs what is enqueued. Refuses where it was spoilt.
std::shared_ptr<Capture> capture_of(const Context& context, CUstream stream);

// ---- what a profiler follows (activities.cpp) ----

// Whether somebody asks how long operations take.
bool is_timed(const Context& context);
// Tells a profiler of a kernel that has run; `launch` and `facts` are null of one on the host.
void tell_activity(const Context& context, CUstream stream, const char* name, double seconds,
                   const HookLaunch* launch = nullptr, const HookFunction* facts = nullptr);

// ---- captures and graphs (captures.cpp, graphs.cpp) ----

// Whether `stream` is captured: then `run` will run with the graph, and not now.
bool captured(Call& call, CUstream stream, CUgraphNodeType type, NodeWork work);
// For calls that wait for the device or change what it has: no capture of any stream survives them.
void outside_captures(const char* what);

// The work of nodes that a client adds to a graph by itself.
NodeWork kernel_work(Call& call, const CUDA_KERNEL_NODE_PARAMS& given);
NodeWork kernel_work(std::shared_ptr<const KernelNode> node);
NodeWork copy_work(const CUDA_MEMCPY3D& given);
NodeWork fill_work(const CUDA_MEMSET_NODE_PARAMS& given);
NodeWork host_work(CUhostFn function, void* data);
NodeWork record_work(CUevent event);
NodeWork wait_work(CUevent event);
NodeWork allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS& given);
NodeWork free_work(CUdeviceptr address);

// ---- modules (modules.cpp) ----

constexpr u64 kWhySize = 4096;
const Hooks& hooks();

// Calls a hook, without the lock, until it answers. The interpreter learns of a Ctrl-C afterwards.
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
// Refuses what is not PTX by its first bytes.
void check_image(const char* image);
// Whether the image is a fat binary; then its newest PTX that the device runs. Refuses one that has
// none.
bool unpack_fat_binary(const char* image, std::string& ptx);
void unload_module(u64 handle);

// Where a client wants to read what went wrong: options of cuModuleLoadDataEx and cuLinkCreate.
class Logs {
 public:
  Logs(unsigned count, const int* options, void** values);
  // Writes what the latest call said if `result` is an error, and how long it is; returns `result`.
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
// Calls what ends user objects, without the lock: it may wait for the interpreter.
void call_ends();

// `facts`: a call that only asks what the devices are, which a forked process may do.
enum class Needs : u8 { nothing, initialised, facts };

// The frame of every entry point: never throws, never blocks for ever, says what went wrong.
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

// The frame of what workbench.driver calls: the body's answer, or `otherwise` where it throws.
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

// What the thread's latest failing call said.
extern "C" const char* workbench_driver_latest_error();
