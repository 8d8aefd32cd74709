// The frame of a library's calls: the checks before a call is enqueued, and the access to its
// arguments when it runs in its stream.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "../library/host_calls.hpp"

namespace workbench::host {

using i64 = std::int64_t;

// Thrown before a call is enqueued; the frame turns it into the call's status.
struct Failed {
  int status;
  std::string why;
  // NVIDIA's library supports it and this one does not: listed when the program ends.
  bool refused = false;
};

// Thrown if the driver refuses a call, or if a running call cannot go on.
struct DriverFailed {
  CUresult code;
  std::string why;
};

enum class Access { reads, writes, updates };

// The arguments of a running call. A range that is not within one allocation ends the call.
class Frame {
 public:
  explicit Frame(HostFrame* frame) : frame_(frame) {}

  // `columns` runs of `rows` elements, `stride` elements apart. Null for an empty matrix.
  template <class T>
  T* matrix(const std::string& argument, T* address, i64 rows, i64 columns, i64 stride,
            Access access = Access::updates) {
    return static_cast<T*>(range(argument, address, sizeof(T), rows, columns, stride, access));
  }
  template <class T>
  const T* matrix(const std::string& argument, const T* address, i64 rows, i64 columns,
                  i64 stride) {
    return static_cast<const T*>(
        range(argument, address, sizeof(T), rows, columns, stride, Access::reads));
  }

  // `count` elements, |increment| apart; a negative increment walks through them backwards.
  template <class T>
  T* vector(const std::string& argument, T* address, i64 count, i64 increment = 1,
            Access access = Access::updates) {
    return matrix(argument, address, 1, increment ? count : 1,
                  increment < 0 ? -increment : increment, access);
  }
  template <class T>
  const T* vector(const std::string& argument, const T* address, i64 count, i64 increment = 1) {
    return matrix(argument, address, 1, increment ? count : 1,
                  increment < 0 ? -increment : increment);
  }

  // The rest of the call, which waits for other processes: see workbench_driver_host_later.
  void later(HostEnd end, void* data, void (*release)(void*)) {
    workbench_driver_host_later(frame_, end, data, release);
  }

  void* range(const std::string& argument, const void* address, std::size_t element, i64 rows,
              i64 columns, i64 stride, Access access);

 private:
  HostFrame* frame_;
};

using Body = std::function<void(Frame&)>;

// Runs `body` in the order of the stream. Throws DriverFailed if the driver refuses.
void enqueue(CUstream stream, const char* name, const std::string& shape, Body body);

// Throws Failed for a value below the least allowed one.
void at_least(i64 value, i64 least, const char* argument, int status);

// Joins sizes as `name=value`.
std::string sizes(std::initializer_list<std::pair<const char*, i64>> given);

// Keeps the message of a failed call; returns its status.
int failed(const char* name, int status, const std::string& why, bool refused = false) noexcept;

// A library's status numbers for the errors that any call can have.
struct Statuses {
  int out_of_memory, internal;
  int not_supported;  // 0: the library has no such status
  int (*of_driver)(CUresult) noexcept;
};

// The frame of every call; `body` throws errors. 0 means success in every library.
template <class Body>
int framed(const Statuses& statuses, const char* name, Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const Failed& error) {
    const bool refused = error.refused || error.status == statuses.not_supported;
    return failed(name, error.status, error.why, refused);
  } catch (const DriverFailed& error) {
    const int status = statuses.of_driver(error.code);
    return failed(name, status, error.why, status == statuses.not_supported);
  } catch (const std::bad_alloc&) {
    return failed(name, statuses.out_of_memory, "the host has no memory left");
  } catch (const std::exception& error) {
    return failed(name, statuses.internal, error.what());
  }
}

// Makes the device's primary context current if the thread has no context, as the runtime does.
// Returns the runtime's error.
int need_context();

bool on_device_alone(const void* address);
bool is_capturing(CUstream stream);

}  // namespace workbench::host
