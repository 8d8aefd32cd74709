// torch's operators, which run on the host: they advance a stream, and read and write memory as
// launches do.
#include <algorithm>
#include <span>

#include "driver.hpp"

#define OPERATOR_API extern "C" __attribute__((visibility("default")))

using namespace workbench::driver;

namespace {

// The elements of a tensor; strides count in elements.
struct Elements {
  u64 address, size;  // bytes of one element
  u64 rank;
  const s64 *sizes, *strides;
};

struct Axis {
  u64 size, stride;  // bytes
};

// The axes of a tensor, with adjacent axes joined where they form one; in any order if `any_order`.
std::vector<Axis> axes_of(const Elements& tensor, bool any_order) {
  std::vector<Axis> axes;
  for (u64 i = 0; i < tensor.rank; ++i) {
    const Axis axis{static_cast<u64>(tensor.sizes[i]),
                    static_cast<u64>(tensor.strides[i]) * tensor.size};
    if (axis.size == 1 || (any_order && axis.stride == 0)) continue;
    axes.push_back(axis);
  }
  if (any_order) {
    std::ranges::stable_sort(axes,
                             [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  }
  std::vector<Axis> joined;
  for (const Axis& axis : axes) {
    if (!joined.empty() && joined.back().stride == axis.stride * axis.size)
      joined.back() = {joined.back().size * axis.size, axis.stride};
    else
      joined.push_back(axis);
  }
  if (joined.empty()) joined.push_back({1, tensor.size});
  return joined;
}

// Calls `visit(address of the first element, elements, bytes from one to the next)` for each row.
template <class Visit>
void for_each_row(const Elements& tensor, const std::vector<Axis>& axes, Visit&& visit) {
  std::vector<u64> at(axes.size() - 1);
  const Axis& row = axes.back();
  for (;;) {
    u64 address = tensor.address;
    for (std::size_t i = 0; i < at.size(); ++i) address += at[i] * axes[i].stride;
    visit(address, row.size, row.stride);
    std::size_t i = at.size();
    while (i && ++at[i - 1] == axes[i - 1].size) at[--i] = 0;
    if (!i) return;
  }
}

u64 extent(const Elements& tensor) {
  u64 last = 0;
  for (u64 i = 0; i < tensor.rank; ++i)
    last += static_cast<u64>(tensor.sizes[i] - 1) * static_cast<u64>(tensor.strides[i]);
  return (last + 1) * tensor.size;
}

std::shared_ptr<Allocation> holder(const Elements& tensor) {
  return tensor.size ? find_allocation(tensor.address, extent(tensor)) : nullptr;
}

void mark(const Elements& tensor, const u8* unwritten) {
  const auto held = holder(tensor);
  if (!held) return;
  u64 number = 0;
  for_each_row(tensor, axes_of(tensor, !unwritten), [&](u64 address, u64 count, u64 stride) {
    const u64 offset = address - held->address;
    if (!unwritten && stride == tensor.size) return mark_written(*held, offset, count * stride);
    for (u64 i = 0; i < count; ++i) {
      if (unwritten && unwritten[number++])
        mark_unwritten(*held, offset + i * stride, tensor.size);
      else
        mark_written(*held, offset + i * stride, tensor.size);
    }
  });
}

struct Missing {
  u64 count = 0, first = 0;  // elements, the address of the first
};

// The elements of which some byte was never written; sets a flag for each element, in order, if
// `flags` is not null.
Missing missing(const Elements& tensor, u8* flags) {
  Missing found;
  const auto held = holder(tensor);
  if (!held || first_unwritten(*held, tensor.address - held->address, extent(tensor)) == kNone)
    return found;
  u64 number = 0;
  for_each_row(tensor, axes_of(tensor, !flags), [&](u64 address, u64 count, u64 stride) {
    for (u64 i = 0; i < count; ++i, ++number) {
      const u64 at = address + i * stride;
      if (first_unwritten(*held, at - held->address, tensor.size) == kNone) continue;
      if (!found.count++) found.first = at;
      found.first = std::min(found.first, at);
      if (flags) flags[number] = 1;
    }
  });
  return found;
}

constexpr u64 kMostRows = 4096;  // of a tensor with gaps; the accesses of others are not followed

// The accesses of a tensor by an operation.
void follow_order(Step& step, const Elements& tensor, u8 kind) {
  const auto axes = axes_of(tensor, true);
  u64 rows = 1;
  for (std::size_t i = 0; i + 1 < axes.size(); ++i) rows *= axes[i].size;
  const bool dense = axes.empty() || axes.back().stride == tensor.size;
  if (!dense) rows *= axes.back().size;
  if (!tensor.size || rows > kMostRows) return;
  for_each_row(tensor, axes, [&](u64 address, u64 count, u64 stride) {
    if (stride == tensor.size || count == 1)
      return step.access({address, address + count * tensor.size, -1, kind});
    for (u64 i = 0; i < count; ++i)
      step.access({address + i * stride, address + i * stride + tensor.size, -1, kind});
  });
}

using Tensors = std::span<const Elements>;

// Whether an operator accesses the elements that its indices choose.
bool chooses(std::string_view name) {
  constexpr std::string_view kParts[] = {"index", "scatter", "gather", "embedding"};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

void follow_order(Call& call, Context& context, CUstream stream, const char* name, Tensors written,
                  Tensors read, bool waits) {
  if (!follows_order()) return;
  Step step(call, context, stream, name);
  const u8 chosen = chooses(name) ? kChosen : 0;
  for (const Elements& one : read) follow_order(step, one, kReads | chosen);
  for (const Elements& one : written) follow_order(step, one, kWrites | chosen);
  if (waits) step.wait();
  step.end();
}

}  // namespace

// Whether an address is page-locked or managed memory, which copies may use later.
OPERATOR_API int workbench_driver_on_host(u64 address) {
  return answer_or(0, [&] {
    const auto found = find_allocation(address, 1);
    return found && found->on_host() ? 1 : 0;
  });
}

// The number of an operator that is captured, for `workbench_driver_gone`.
OPERATOR_API u32 workbench_driver_recorded(const char* name) {
  u32 number = 0;
  entry([&](Call& call) { number = order_recorded(call, name); });
  return number;
}

// Reports that a graph runs an operator whose page-locked tensor is gone.
OPERATOR_API void workbench_driver_gone(u32 recorded) {
  entry([&](Call& call) {
    tell_gone(call, recorded, "its page-locked tensor was freed, and its memory may be another's");
  });
}

// Waits for what the stream waits for, before an operator runs on it. 0 if that has failed.
OPERATOR_API int workbench_driver_settle(CUstream stream) {
  return !any_pending() ||
         entry([&](Call& call) { settle(call, *call.context(), stream); }) == CUDA_SUCCESS;
}

OPERATOR_API int workbench_driver_follows_writes() { return state().follows_writes; }

// Reports an operator that has run and written tensors. Its time is that of a GPU to move `bytes`.
// `read` are others; the host waits for it if `waits`.
OPERATOR_API void workbench_driver_operator(CUstream stream, const char* name, u64 bytes,
                                            const Elements* written, u64 count,
                                            const Elements* read, u64 read_count, int waits) {
  entry([&](Call& call) {
    if (state().follows_writes)
      std::for_each(written, written + count, [](const Elements& one) { mark(one, nullptr); });
    Context& context = *call.context();
    follow_order(call, context, stream, name, {written, count}, {read, read_count}, waits);
    if (!is_timed(context)) return;
    const HookDevice& device = state().device;
    const double seconds =
        device.operation_seconds + static_cast<double>(bytes) / device.device_bytes_per_second;
    advance(context, stream, seconds);
    tell_activity(context, stream, name, seconds);
  });
}

// Reports an operator of a graph that the stream runs now.
OPERATOR_API void workbench_driver_replayed(const char* name, const Elements* written, u64 count,
                                            const Elements* read, u64 read_count) {
  entry([&](Call& call) {
    if (const HostFunction* const running = needed_thread_state().host_function)
      follow_order(call, running->context, running->stream, name, {written, count},
                   {read, read_count}, false);
  });
}

// Marks a tensor as written, except for the elements in `unwritten`, if that is not null. Those
// were copied from memory at `source`.
OPERATOR_API void workbench_driver_mark(const Elements* tensor, const u8* unwritten, u64 source) {
  entry([&](Call&) {
    if (!state().follows_writes) return;
    mark(*tensor, unwritten);
    if (unwritten && missing(*tensor, nullptr).count) copy_origin(tensor->address, source);
  });
}

// The number of elements that were never written. Sets their flags if `flags` is not null.
OPERATOR_API u64 workbench_driver_unwritten(const Elements* tensor, u8* flags) {
  return answer_or(u64{0}, [&] { return missing(*tensor, flags).count; });
}

// Reports a read of elements that were never written. They count as written from here on.
OPERATOR_API void workbench_driver_read(const Elements* tensor, const char* reader) {
  entry([&](Call& call) {
    const Missing found = missing(*tensor, nullptr);
    if (!found.count) return;
    mark(*tensor, nullptr);
    u64 total = 1;
    for (u64 i = 0; i < tensor->rank; ++i)
      if (tensor->strides[i]) total *= static_cast<u64>(tensor->sizes[i]);
    const HookRead read{.reader = reader,
                        .element = static_cast<u32>(tensor->size),
                        .address = found.first,
                        .total = total,
                        .unwritten = found.count,
                        .runs = 0,
                        .longest = 0,
                        .frames = nullptr,
                        .frame_count = 0};
    tell_read(call, read);
  });
}

// Advances the stream's clock by some seconds.
OPERATOR_API void workbench_driver_sleep(CUstream stream, double seconds) {
  entry([&](Call& call) {
    advance(*call.context(), stream, state().device.operation_seconds + seconds);
  });
}
