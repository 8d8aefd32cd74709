// CUPTI's activities for torch's profiler: a record of each kernel with its predicted time, and one
// of the torch operator that launched it. Other kinds of activities have no records.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../library/activities.hpp"
#include "records.hpp"

#define CUPTI_API extern "C" __attribute__((visibility("default"))) int

using namespace workbench::profiling;

namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kNotInitialized = 15,
  kMaxLimitReached = 12,
  kNotSupported = 27,
};

constexpr u32 kVersion = 130001;
constexpr u32 kCorrelationKinds = 8;
constexpr double kNanoseconds = 1e9;

using RequestBuffer = void (*)(u8** buffer, std::size_t* size, std::size_t* most_records);
using CompleteBuffer = void (*)(void* context, u32 stream, u8* buffer, std::size_t size,
                                std::size_t used);
using Clock = u64 (*)();

u64 host_clock() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<u64>(std::chrono::nanoseconds(since).count());
}

// Ticks of a client's clock per second; torch's clock counts the processor's cycles.
double ticks_per_second(Clock clock) {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  const u64 first = clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const u64 last = clock();
  const std::chrono::duration<double> lasted = steady_clock::now() - begin;
  return static_cast<double>(last - first) / lasted.count();
}

// The records, in the client's buffers.
class Records {
 public:
  // Never destroyed: another thread may still launch at process exit.
  static Records& all() {
    static auto* const records = new Records;
    return *records;
  }

  void take_callbacks(RequestBuffer request, CompleteBuffer completed) {
    std::lock_guard lock(mutex_);
    request_ = request;
    complete_ = completed;
  }

  void take_clock(Clock clock) {
    std::lock_guard lock(mutex_);
    if (clock == clock_) return;
    clock_ = clock;
    ticks_per_second_ = clock == host_clock ? kNanoseconds : ticks_per_second(clock);
    busy_until_.clear();
  }

  u64 now() {
    std::lock_guard lock(mutex_);
    return clock_();
  }

  // A kernel's predicted time ends now, or later if its stream is still busy.
  void add(const Activity& activity, const std::vector<std::pair<u32, u64>>& correlations) {
    std::lock_guard lock(mutex_);
    const u32 correlation = ++correlation_;
    for (const auto& [kind, id] : correlations)
      append(Correlation{kExternalCorrelation, kind, id, correlation, 0});
    const auto lasts = static_cast<u64>(std::lround(activity.seconds * ticks_per_second_));
    u64& busy = busy_until_[{activity.device, activity.stream}];
    KernelRecord record{};
    record.kind = kConcurrentKernel;
    record.registers = static_cast<std::uint16_t>(activity.registers);
    record.start = std::max(busy, clock_() - lasts);
    record.end = record.completed = busy = record.start + lasts;
    record.device = activity.device;
    record.context = activity.context;
    record.stream = static_cast<u32>(activity.stream);
    std::copy_n(activity.grid, 3, record.grid);
    std::copy_n(activity.block, 3, record.block);
    record.static_shared = activity.static_shared;
    record.dynamic_shared = activity.dynamic_shared;
    record.correlation = correlation;
    record.grid_id = correlation;
    record.name = names_.insert(activity.name).first->c_str();
    append(record);
  }

  void flush() {
    std::lock_guard lock(mutex_);
    complete();
  }

 private:
  template <class Record>
  void append(const Record& record) {
    if (buffer_ && size_ - used_ < sizeof record) complete();
    if (!buffer_ && request_) {
      std::size_t most_records = 0;  // 0: as many as fit
      request_(&buffer_, &size_, &most_records);
    }
    if (!buffer_ || size_ - used_ < sizeof record) return;  // the client has no more buffers
    std::memcpy(buffer_ + used_, &record, sizeof record);
    used_ += sizeof record;
  }

  void complete() {
    if (!buffer_) return;
    u8* const full = buffer_;
    buffer_ = nullptr;
    complete_(nullptr, 0, full, size_, std::exchange(used_, 0));
  }

  std::mutex mutex_;
  RequestBuffer request_ = nullptr;
  CompleteBuffer complete_ = nullptr;
  Clock clock_ = host_clock;
  double ticks_per_second_ = kNanoseconds;
  u8* buffer_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
  u32 correlation_ = 0;
  std::map<std::pair<u32, u64>, u64> busy_until_;  // by device and stream
  std::set<std::string> names_;                    // records point to them
};

std::vector<u64>* pushed() {  // by kind: stacks of the calling thread's correlation ids
  thread_local std::vector<u64> ids[kCorrelationKinds];
  return ids;
}

void follow(const Activity* activity) {
  try {
    std::vector<std::pair<u32, u64>> correlations;
    for (u32 kind = 0; kind < kCorrelationKinds; ++kind)
      if (!pushed()[kind].empty()) correlations.emplace_back(kind, pushed()[kind].back());
    Records::all().add(*activity, correlations);
  } catch (const std::bad_alloc&) {
    // No memory: the record is lost.
  }
}

bool is_kernels(u32 kind) { return kind == kKernel || kind == kConcurrentKernel; }

}  // namespace

CUPTI_API cuptiGetVersion(u32* version) {
  if (!version) return kInvalidParameter;
  *version = kVersion;
  return kSuccess;
}

CUPTI_API cuptiGetTimestamp(u64* timestamp) {
  if (!timestamp) return kInvalidParameter;
  *timestamp = Records::all().now();
  return kSuccess;
}

CUPTI_API cuptiGetResultString(int result, const char** text) {
  if (!text) return kInvalidParameter;
  switch (result) {
    case kSuccess: *text = "CUPTI_SUCCESS"; break;
    case kInvalidParameter: *text = "CUPTI_ERROR_INVALID_PARAMETER"; break;
    case kMaxLimitReached: *text = "CUPTI_ERROR_MAX_LIMIT_REACHED"; break;
    case kNotInitialized: *text = "CUPTI_ERROR_NOT_INITIALIZED"; break;
    case kNotSupported: *text = "CUPTI_ERROR_NOT_SUPPORTED by the simulated GPU"; break;
    default: *text = "an unknown result of CUPTI"; return kInvalidParameter;
  }
  return kSuccess;
}

CUPTI_API cuptiActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete) {
  if (!request || !complete) return kInvalidParameter;
  Records::all().take_callbacks(request, complete);
  return kSuccess;
}

CUPTI_API cuptiActivityRegisterTimestampCallback(Clock clock) {
  Records::all().take_clock(clock ? clock : host_clock);
  return kSuccess;
}

CUPTI_API cuptiActivityEnable(u32 kind) {
  if (is_kernels(kind)) workbench_driver_follow_activities(follow);
  return kSuccess;
}

CUPTI_API cuptiActivityDisable(u32 kind) {
  if (is_kernels(kind)) workbench_driver_follow_activities(nullptr);
  return kSuccess;
}

CUPTI_API cuptiActivityFlushAll(u32) {
  Records::all().flush();
  return kSuccess;
}

CUPTI_API cuptiActivityGetNextRecord(u8* buffer, std::size_t used, u8** record) {
  if (!buffer || !record) return kInvalidParameter;
  u8* next = buffer;
  if (*record) {
    u32 kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    next = *record + (kind == kExternalCorrelation ? sizeof(Correlation) : sizeof(KernelRecord));
  }
  if (next >= buffer + used) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}

CUPTI_API cuptiActivityGetNumDroppedRecords(void*, u32, std::size_t* dropped) {
  if (!dropped) return kInvalidParameter;
  *dropped = 0;
  return kSuccess;
}

CUPTI_API cuptiActivityPushExternalCorrelationId(u32 kind, u64 id) {
  if (kind >= kCorrelationKinds) return kInvalidParameter;
  pushed()[kind].push_back(id);
  return kSuccess;
}

CUPTI_API cuptiActivityPopExternalCorrelationId(u32 kind, u64* id) {
  if (kind >= kCorrelationKinds || pushed()[kind].empty()) return kInvalidParameter;
  if (id) *id = pushed()[kind].back();
  pushed()[kind].pop_back();
  return kSuccess;
}

// Settings of buffers and of kinds without records have no effect.
CUPTI_API cuptiActivitySetAttribute(u32, std::size_t*, void*) { return kSuccess; }
CUPTI_API cuptiActivityEnableRuntimeApi(u32, u8) { return kSuccess; }
CUPTI_API cuptiActivityEnableDriverApi(u32, u8) { return kSuccess; }
CUPTI_API cuptiActivityEnableCudaEventDeviceTimestamps(u8) { return kSuccess; }
CUPTI_API cuptiFinalize() { return kSuccess; }

// Callbacks at calls of the driver and the runtime are not supported: a subscriber is never called.
CUPTI_API cuptiSubscribe(void** subscriber, void*, void*) {
  static char only;
  if (!subscriber) return kInvalidParameter;
  *subscriber = &only;
  return kSuccess;
}
CUPTI_API cuptiUnsubscribe(void*) { return kSuccess; }
CUPTI_API cuptiEnableCallback(u32, void*, u32, u32) { return kSuccess; }
CUPTI_API cuptiEnableDomain(u32, void*, u32) { return kSuccess; }
CUPTI_API cuptiGetCallbackName(u32, u32, const char**) { return kNotSupported; }
