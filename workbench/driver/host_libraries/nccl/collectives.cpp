// Collectives and messages. Each contributes its bytes when its stream reaches it, and ends when
// the others have done so, too: see driver/library/pending.cpp.
#include <algorithm>
#include <cstring>

#include "communicator.hpp"

extern "C" {
int cuCtxGetCurrent(CUcontext* context);
int cuCtxSetCurrent(CUcontext context);
}

namespace workbench::nccl {
namespace {

using host::Access;
using host::Frame;

constexpr const char* kNames[] = {"all_reduce", "reduce",  "broadcast",      "all_gather",
                                  "gather",     "scatter", "reduce_scatter", "all_to_all",
                                  "send",       "recv"};

// A call on its communicator.
struct Part {
  std::shared_ptr<Communicator> on;
  Collective what;
  std::optional<Multiple> multiple = {};
  // When it runs: its number, the address of its result, and the place of the call.
  std::string place = {};
  u64 number = 0;
  char* result = nullptr;
  bool ended = false;

  Meeting& meeting() const { return on->meeting; }
  int rank() const { return on->meeting.rank(); }
  u64 ranks() const { return static_cast<u64>(on->meeting.ranks()); }
  u64 bytes() const { return what.count * bytes_of(what.type); }
  bool is_root() const { return what.peer == rank(); }

  u64 given() const;     // bytes that it reads
  u64 received() const;  // bytes that it writes
  std::string text() const;
  std::string doing() const;
  void begin(Frame& frame);
  std::vector<int> missing() const;
  void end();

 private:
  void write_result(const std::vector<Bytes>& all) const;
};

u64 Part::given() const {
  switch (what.kind) {
    case Kind::receive: return 0;
    case Kind::broadcast: return is_root() ? bytes() : 0;
    case Kind::scatter: return is_root() ? bytes() * ranks() : 0;
    case Kind::reduce_scatter:
    case Kind::all_to_all: return bytes() * ranks();
    default: return bytes();
  }
}

u64 Part::received() const {
  switch (what.kind) {
    case Kind::send: return 0;
    case Kind::reduce: return is_root() ? bytes() : 0;
    case Kind::gather: return is_root() ? bytes() * ranks() : 0;
    case Kind::all_gather:
    case Kind::all_to_all: return bytes() * ranks();
    default: return bytes();
  }
}

std::string grouped(u64 number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

// What has to be the same on all ranks.
std::string Part::text() const {
  const bool reduces = what.kind == Kind::all_reduce || what.kind == Kind::reduce ||
                       what.kind == Kind::reduce_scatter;
  const bool has_root = what.kind == Kind::reduce || what.kind == Kind::broadcast ||
                        what.kind == Kind::gather || what.kind == Kind::scatter;
  std::string text =
      what.kind < Kind::send ? std::string(kNames[static_cast<int>(what.kind)]) + " of " : "";
  text += grouped(what.count) + " " + name_of(what.type);
  if (reduces) text += std::string(" (") + name_of_operator(what.operation) + ")";
  if (has_root) text += " with root " + std::to_string(what.peer);
  return text;
}

std::string Part::doing() const {
  std::string doing = on->self() + " in ";
  if (what.kind == Kind::send) doing += "send to rank " + std::to_string(what.peer) + " of ";
  if (what.kind == Kind::receive) doing += "recv from rank " + std::to_string(what.peer) + " of ";
  doing += text();
  return place.empty() ? doing : doing + " at " + place;
}

void Part::begin(Frame& frame) {
  char line[kTextBytes];
  workbench_driver_caller(line, sizeof line);
  place = line;
  if (const std::string why = meeting().failure(); !why.empty())
    throw Failed{kRemoteError, doing() + ": the communicator has failed before: " + why};
  const auto* from = static_cast<const char*>(what.from);
  from = frame.matrix("sendbuff", from, static_cast<i64>(given()), given() ? 1 : 0, 0);
  result = frame.matrix("recvbuff", static_cast<char*>(what.to), static_cast<i64>(received()),
                        received() ? 1 : 0, 0, Access::writes);
  std::vector<char> scaled;
  if (multiple) {
    scaled.assign(from, from + given());
    scale(what.type, multiple->factor, given() / bytes_of(what.type), scaled.data());
    from = scaled.data();
  }
  if (what.kind == Kind::send)
    number = meeting().send(what.peer, text(), place, from, given());
  else if (what.kind == Kind::receive)
    number = meeting().expect(what.peer);
  else
    number = meeting().contribute(text(), place, from, given());
  ended = false;
}

std::vector<int> Part::missing() const {
  const std::vector<int> peer{what.peer}, none;
  if (what.kind == Kind::send) return meeting().is_expected(what.peer, number) ? none : peer;
  if (what.kind == Kind::receive) return meeting().is_sent(what.peer, number) ? none : peer;
  return meeting().missing(number);
}

void Part::write_result(const std::vector<Bytes>& all) const {
  const u64 part = bytes(), own = static_cast<u64>(rank());
  const auto root = [&] { return all[static_cast<std::size_t>(what.peer)].content(); };
  std::vector<const void*> parts;
  switch (what.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter:
      for (const Bytes& one : all)
        parts.push_back(one.content() + (what.kind == Kind::reduce_scatter ? own * part : 0));
      return reduce(what.type, what.operation, parts, what.count, result);
    case Kind::broadcast: std::memcpy(result, root(), part); return;
    case Kind::scatter: std::memcpy(result, root() + own * part, part); return;
    default:
      for (u64 i = 0; i < all.size(); ++i)
        std::memcpy(result + i * part,
                    all[i].content() + (what.kind == Kind::all_to_all ? own * part : 0), part);
  }
}

// All that it waits for is there.
void Part::end() {
  ended = true;
  if (what.kind == Kind::send) return;
  if (what.kind == Kind::receive) {
    const Bytes message = meeting().take(what.peer, number);
    if (message.text() != text()) {
      std::string sent = message.text();
      if (*message.place()) sent += std::string(" at ") + message.place();
      throw Failed{kInvalidUsage,
                   doing() + " gets " + sent + ": both ranks have to pass the same count and type"};
    }
    if (result) std::memcpy(result, message.content(), received());
    return;
  }
  const std::vector<Bytes> all = meeting().contributions(number);
  if (result) write_result(all);
  meeting().finish(number);
}

// The calls of a group on one stream: one operation of the stream.
struct Batch {
  CUstream stream;
  std::string name;
  std::vector<Part> parts = {};

  void fail(const std::string& why) const {
    for (const Part& one : parts) one.meeting().fail(why);
  }
  CUresult end(bool waits, std::string& why);
};

// The calls that can end do, in any order.
CUresult Batch::end(bool waits, std::string& why) {
  try {
    for (Part& one : parts) {
      if (one.ended) continue;
      const auto missing = [&] { return one.missing(); };
      if (waits)
        one.meeting().wait(one.doing(), missing);
      else if (!one.meeting().is_there(one.doing(), missing))
        return CUDA_ERROR_NOT_READY;
      one.end();
    }
    return CUDA_SUCCESS;
  } catch (const Failed& error) {
    why = error.why;
    if (error.status == kInternalError) return CUDA_ERROR_LAUNCH_FAILED;  // Ctrl-C, of this rank
  } catch (const std::bad_alloc&) {
    why = "the host has no memory left";
  }
  fail(why);
  return CUDA_ERROR_LAUNCH_FAILED;
}

struct Group {
  int depth = 0;
  std::vector<std::pair<std::string, Batch>> batches = {};
  std::vector<std::function<void()>> rests = {};
};

Group& group() {
  thread_local Group one;
  return one;
}

CUresult end_batch(void* data, int waits, char* why, u64 size) {
  std::string text;
  const CUresult result = static_cast<Batch*>(data)->end(waits != 0, text);
  std::snprintf(why, size, "%s", text.c_str());
  return result;
}

void release_batch(void* data) { delete static_cast<Batch*>(data); }

void run(const Batch& batch) {
  const Part& first = batch.parts.front();
  CUcontext before = nullptr;
  cuCtxGetCurrent(&before);
  cuCtxSetCurrent(first.on->context);
  const auto failed = std::make_shared<std::optional<Failed>>();  // a graph may run it later
  std::string shape;
  for (const Part& one : batch.parts) shape += (shape.empty() ? "" : "; ") + one.text();
  try {
    host::enqueue(batch.stream, batch.name.c_str(), shape, [batch, failed](Frame& frame) {
      auto running = std::make_unique<Batch>(batch);
      try {
        for (Part& one : running->parts) one.begin(frame);
        for (Part& one : running->parts)
          if (one.what.kind < Kind::send && one.missing().empty())
            one.meeting().contributions(one.number);
      } catch (const Failed& error) {
        running->fail(error.why);
        *failed = error;
        throw host::DriverFailed{CUDA_ERROR_LAUNCH_FAILED, error.why};
      }
      frame.later(end_batch, running.release(), release_batch);
    });
  } catch (const host::DriverFailed&) {
    cuCtxSetCurrent(before);
    if (*failed) throw Failed(**failed);
    throw;
  }
  cuCtxSetCurrent(before);
}

void end_group() {
  Group& all = group();
  if (all.depth == 0) throw Failed{kInvalidUsage, "ncclGroupStart comes first"};
  if (--all.depth) return;
  const auto batches = std::move(all.batches);
  const auto rests = std::move(all.rests);
  all = {};
  for (const auto& [_, batch] : batches) run(batch);
  for (const auto& rest : rests) rest();
}

void check(const Part& part) {
  const Collective& what = part.what;
  const bool has_peer = what.kind == Kind::reduce || what.kind == Kind::broadcast ||
                        what.kind == Kind::gather || what.kind == Kind::scatter ||
                        what.kind >= Kind::send;
  bytes_of(what.type);
  if (has_peer && (what.peer < 0 || what.peer >= part.on->meeting.ranks()))
    throw Failed{kInvalidArgument, "there are ranks 0 to " + std::to_string(part.ranks() - 1) +
                                       ", not " + std::to_string(what.peer)};
  if (what.operation < kSum || (what.operation >= kOperators && !part.multiple))
    throw Failed{kInvalidArgument, "no operator has the number " + std::to_string(what.operation)};
}

}  // namespace

void at_group_end(std::function<void()> rest) {
  if (group().depth)
    group().rests.push_back(std::move(rest));
  else
    rest();
}

void enqueue(const char* name, Handle handle, const Collective& what, CUstream stream) {
  Part part{communicator(handle), what};
  {
    std::lock_guard lock(part.on->mutex);
    const auto own = part.on->operators.find(what.operation);
    if (own != part.on->operators.end()) part.multiple = own->second;
  }
  check(part);
  ++group().depth;
  auto& batches = group().batches;
  const auto same = std::ranges::find_if(batches, [&](const auto& one) {
    return one.second.stream == stream && one.second.parts[0].on->context == part.on->context;
  });
  if (same == batches.end())
    batches.push_back({name, Batch{stream, name, {part}}});
  else
    same->second.parts.push_back(part);
  end_group();
}

}  // namespace workbench::nccl

using namespace workbench::nccl;

#define COLLECTIVE(name, parameters, ...)                                                 \
  NCCL_API name parameters {                                                              \
    return call(#name, [&] { enqueue(#name, handle, Collective{__VA_ARGS__}, stream); }); \
  }

COLLECTIVE(ncclAllReduce,
           (const void* from, void* to, std::size_t count, int type, int operation, Handle handle,
            CUstream stream),
           Kind::all_reduce, from, to, count, type, operation)
COLLECTIVE(ncclReduce,
           (const void* from, void* to, std::size_t count, int type, int operation, int root,
            Handle handle, CUstream stream),
           Kind::reduce, from, to, count, type, operation, root)
COLLECTIVE(ncclBroadcast,
           (const void* from, void* to, std::size_t count, int type, int root, Handle handle,
            CUstream stream),
           Kind::broadcast, from, to, count, type, kSum, root)
COLLECTIVE(ncclBcast,
           (void* buffer, std::size_t count, int type, int root, Handle handle, CUstream stream),
           Kind::broadcast, buffer, buffer, count, type, kSum, root)
COLLECTIVE(ncclAllGather,
           (const void* from, void* to, std::size_t count, int type, Handle handle,
            CUstream stream),
           Kind::all_gather, from, to, count, type)
COLLECTIVE(ncclReduceScatter,
           (const void* from, void* to, std::size_t count, int type, int operation, Handle handle,
            CUstream stream),
           Kind::reduce_scatter, from, to, count, type, operation)
COLLECTIVE(ncclAlltoAll,
           (const void* from, void* to, std::size_t count, int type, Handle handle,
            CUstream stream),
           Kind::all_to_all, from, to, count, type)
COLLECTIVE(ncclGather,
           (const void* from, void* to, std::size_t count, int type, int root, Handle handle,
            CUstream stream),
           Kind::gather, from, to, count, type, kSum, root)
COLLECTIVE(ncclScatter,
           (const void* from, void* to, std::size_t count, int type, int root, Handle handle,
            CUstream stream),
           Kind::scatter, from, to, count, type, kSum, root)
COLLECTIVE(ncclSend,
           (const void* from, std::size_t count, int type, int peer, Handle handle,
            CUstream stream),
           Kind::send, from, nullptr, count, type, kSum, peer)
COLLECTIVE(ncclRecv,
           (void* to, std::size_t count, int type, int peer, Handle handle, CUstream stream),
           Kind::receive, nullptr, to, count, type, kSum, peer)

NCCL_API ncclGroupStart() {
  ++group().depth;
  return kSuccess;
}
NCCL_API ncclGroupEnd() { return call("ncclGroupEnd", end_group); }
