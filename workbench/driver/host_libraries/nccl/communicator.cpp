#include "communicator.hpp"

#include <algorithm>
#include <cstring>

extern "C" {
int cuCtxGetCurrent(CUcontext* context);
int cuCtxGetDevice(int* device);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
int cudaMalloc(void** address, std::size_t bytes);
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
int cudaFree(void* address);
}

namespace workbench::nccl {
namespace {

struct Known {
  std::mutex mutex;
  std::map<u64, std::shared_ptr<Communicator>> live;
  std::map<u64, std::string> ended;  // their names
  u64 latest = 0;
  std::string error;
};

Known& known() {
  static auto* const one = new Known;  // never destroyed: calls may come until the very end
  return *one;
}

// At the end of the process its ranks leave, so that the others need not wait for them.
struct AtEnd {
  ~AtEnd() {
    std::lock_guard lock(known().mutex);
    known().live.clear();
  }
} at_end;

u64 number_of(Handle handle) { return reinterpret_cast<u64>(handle); }

Handle add(std::shared_ptr<Communicator> made) {
  constexpr u64 kFirst = 0x00cc'1000'0000;  // no address
  std::lock_guard lock(known().mutex);
  const u64 number = kFirst + 16 * ++known().latest;
  known().live[number] = std::move(made);
  return reinterpret_cast<Handle>(number);
}

int device_here() {
  int device = 0;
  if (host::need_context() || cuCtxGetDevice(&device))
    throw Failed{kDriverError, "there is no current device"};
  return device;
}

CUcontext context_here() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  return context;
}

void wait_for_all(const std::string& name, Communicator& made) {
  made.meeting.wait(made.self() + " in " + name, [&] { return made.meeting.absent(); });
  made.meeting.check_devices();
}

template <class T>
T& needed(T* pointer, const char* argument) {
  if (!pointer) throw Failed{kInvalidArgument, std::string(argument) + " is a null pointer"};
  return *pointer;
}

void join(const char* name, Handle* out, const std::string& folder, int ranks, int rank,
          const Config* config) {
  auto made = std::make_shared<Communicator>(folder, ranks, rank);
  if (config && config->name) made->name = config->name;
  needed(out, "comm") = add(made);
  at_group_end([made, text = std::string(name)] { wait_for_all(text, *made); });
}

std::string folder_of(const UniqueId& id) {
  if (!std::memchr(id.text, 0, kIdBytes) || id.text[0] != '/')
    throw Failed{kInvalidArgument,
                 "the identifier is not one of this library's ncclGetUniqueId: rank 0 makes it, "
                 "and the others get a copy"};
  return id.text;
}

int end(const char* name, Handle handle) {
  return call(name, [&] {
    const auto found = communicator(handle);
    std::lock_guard lock(known().mutex);
    known().ended[number_of(handle)] =
        found->self() + ", of " + std::to_string(found->meeting.ranks()) + " ranks";
    known().live.erase(number_of(handle));
  });
}

}  // namespace

Communicator::Communicator(const std::string& folder, int ranks, int rank)
    : device(device_here()), context(context_here()), meeting(folder, ranks, rank, device) {}

std::string Communicator::self() const {
  const std::string rank = "rank " + std::to_string(meeting.rank());
  return name.empty() ? rank : rank + " of " + name;
}

std::shared_ptr<Communicator> communicator(Handle handle) {
  std::lock_guard lock(known().mutex);
  const auto found = known().live.find(number_of(handle));
  if (found != known().live.end()) return found->second;
  const auto ended = known().ended.find(number_of(handle));
  if (ended == known().ended.end())
    throw Failed{kInvalidArgument, "no such communicator: ncclCommInitRank makes one"};
  throw Failed{kInvalidArgument, "the communicator (" + ended->second +
                                     ") has ended: destroy it after its last call, or make a new "
                                     "one with a new identifier"};
}

int call(const char* name, const std::function<void()>& body) noexcept {
  const auto keep = [&](const std::string& why) noexcept {
    std::lock_guard lock(known().mutex);
    known().error = std::string(name) + ": " + why;
  };
  const auto driver_status = [](CUresult) noexcept { return static_cast<int>(kDriverError); };
  return host::framed({kSystemError, kInternalError, 0, driver_status}, name, [&] {
    try {
      body();
    } catch (const Failed& error) {
      keep(error.why);
      throw;
    } catch (const host::DriverFailed& error) {
      keep(error.why);
      throw;
    }
  });
}

}  // namespace workbench::nccl

using namespace workbench::nccl;
namespace host = workbench::host;

NCCL_API ncclGetVersion(int* version) {
  return call("ncclGetVersion", [&] { needed(version, "version") = kVersion; });
}

NCCL_API ncclGetUniqueId(UniqueId* id) {
  return call("ncclGetUniqueId", [&] {
    const std::string folder = new_folder();
    std::memset(&needed(id, "uniqueId"), 0, sizeof(UniqueId));
    std::memcpy(id->text, folder.c_str(), folder.size());
  });
}

NCCL_API ncclCommInitRank(Handle* out, int ranks, UniqueId id, int rank) {
  return call("ncclCommInitRank",
              [&] { join("ncclCommInitRank", out, folder_of(id), ranks, rank, nullptr); });
}

NCCL_API ncclCommInitRankConfig(Handle* out, int ranks, UniqueId id, int rank,
                                const Config* config) {
  return call("ncclCommInitRankConfig",
              [&] { join("ncclCommInitRank", out, folder_of(id), ranks, rank, config); });
}

NCCL_API ncclCommInitRankScalable(Handle* out, int ranks, int rank, int count, const UniqueId* ids,
                                  const Config* config) {
  return call("ncclCommInitRankScalable", [&] {
    if (count < 1) throw Failed{kInvalidArgument, "there is no identifier"};
    join("ncclCommInitRank", out, folder_of(needed(ids, "commIds")), ranks, rank, config);
  });
}

// One process has all ranks: those of the devices, in their order.
NCCL_API ncclCommInitAll(Handle* out, int count, const int* devices) {
  return call("ncclCommInitAll", [&] {
    int before = 0;
    needed(out, "comm");
    if (host::need_context() || cudaGetDevice(&before))
      throw Failed{kDriverError, "there is no device"};
    const std::string folder = new_folder();
    for (int rank = 0; rank < count; ++rank) {
      if (cudaSetDevice(devices ? devices[rank] : rank)) {
        cudaSetDevice(before);
        throw Failed{kInvalidArgument, "there is no device " +
                                           std::to_string(devices ? devices[rank] : rank) +
                                           ": devices=, --devices set how many there are"};
      }
      host::need_context();
      out[rank] = add(std::make_shared<Communicator>(folder, count, rank));
    }
    cudaSetDevice(before);
    if (count > 0) communicator(out[0])->meeting.check_devices();
  });
}

// The ranks with one color form a communicator, in the order of their keys.
NCCL_API ncclCommSplit(Handle handle, int color, int key, Handle* out, const Config* config) {
  return call("ncclCommSplit", [&] {
    const auto parent = communicator(handle);
    Meeting& meeting = parent->meeting;
    const int mine[2] = {color, key};
    const u64 number = meeting.contribute("ncclCommSplit", "", mine, sizeof mine);
    meeting.wait(parent->self() + " in ncclCommSplit", [&] { return meeting.missing(number); });
    std::vector<std::pair<int, int>> members;  // key and rank
    const std::vector<Bytes> all = meeting.contributions(number);
    for (int rank = 0; rank < meeting.ranks(); ++rank) {
      int other[2];
      std::memcpy(other, all[static_cast<std::size_t>(rank)].content(), sizeof other);
      if (other[0] == color) members.emplace_back(other[1], rank);
    }
    meeting.finish(number);
    needed(out, "newcomm") = nullptr;
    if (color < 0) return;
    std::ranges::sort(members);
    const auto at = std::ranges::find(members, meeting.rank(), &std::pair<int, int>::second);
    const std::string folder =
        meeting.folder() + "-" + std::to_string(number) + "-" + std::to_string(color);
    join("ncclCommSplit", out, folder, static_cast<int>(members.size()),
         static_cast<int>(at - members.begin()), config);
  });
}

NCCL_API ncclCommDestroy(Handle handle) { return end("ncclCommDestroy", handle); }
NCCL_API ncclCommAbort(Handle handle) { return end("ncclCommAbort", handle); }
NCCL_API ncclCommFinalize(Handle handle) {
  return call("ncclCommFinalize", [&] { communicator(handle); });
}

NCCL_API ncclCommCount(Handle handle, int* count) {
  return call("ncclCommCount",
              [&] { needed(count, "count") = communicator(handle)->meeting.ranks(); });
}
NCCL_API ncclCommUserRank(Handle handle, int* rank) {
  return call("ncclCommUserRank",
              [&] { needed(rank, "rank") = communicator(handle)->meeting.rank(); });
}
NCCL_API ncclCommCuDevice(Handle handle, int* device) {
  return call("ncclCommCuDevice", [&] { needed(device, "device") = communicator(handle)->device; });
}
NCCL_API ncclCommGetAsyncError(Handle handle, int* status) {
  return call("ncclCommGetAsyncError", [&] {
    const std::string why = communicator(handle)->meeting.failure();
    needed(status, "asyncError") = why.empty() ? kSuccess : kRemoteError;
    if (why.empty()) return;
    std::lock_guard lock(known().mutex);
    known().error = why;
  });
}

// Buffers need no registration.
NCCL_API ncclCommRegister(Handle handle, void* buffer, std::size_t, void** registered) {
  return call("ncclCommRegister", [&] {
    communicator(handle);
    needed(registered, "handle") = buffer;
  });
}
NCCL_API ncclCommDeregister(Handle handle, void*) {
  return call("ncclCommDeregister", [&] { communicator(handle); });
}

NCCL_API ncclMemAlloc(void** address, std::size_t bytes) {
  return cudaMalloc(address, bytes) ? kDriverError : kSuccess;
}
NCCL_API ncclMemFree(void* address) { return cudaFree(address) ? kDriverError : kSuccess; }

// The factor lies in the host's memory if `on_host`, else in the device's.
NCCL_API ncclRedOpCreatePreMulSum(int* out, const void* factor, int type, int on_host,
                                  Handle handle) {
  return call("ncclRedOpCreatePreMulSum", [&] {
    const auto found = communicator(handle);
    needed(static_cast<const char*>(factor), "scalar");
    double copied = 0;
    if (!on_host && cudaMemcpy(&copied, factor, bytes_of(type), 2))
      throw Failed{kInvalidArgument, "the scalar is not in the device's memory"};
    const double value = number_at(type, on_host ? factor : &copied);
    std::lock_guard lock(found->mutex);
    const int number =
        found->operators.empty() ? int{kOperators} : found->operators.rbegin()->first + 1;
    found->operators[number] = {type, value};
    needed(out, "op") = number;
  });
}
NCCL_API ncclRedOpDestroy(int number, Handle handle) {
  return call("ncclRedOpDestroy", [&] {
    const auto found = communicator(handle);
    std::lock_guard lock(found->mutex);
    found->operators.erase(number);
  });
}

extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int status) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return status >= 0 && status < 8 ? kTexts[status] : "unknown result code";
}

extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(Handle) {
  thread_local std::string text;
  std::lock_guard lock(known().mutex);
  text = known().error;
  return text.c_str();
}
