// A call of cuBLAS: its handle, its scalars, and the macros that export each routine for its types,
// with 32-bit and 64-bit integers. Signatures and numbers are those of cublas_api.h, which is not
// needed to build this library.
#pragma once
#include "../host_blas.hpp"
#include "../status.hpp"

namespace workbench::host {

enum PointerMode : int { kOnHost = 0, kOnDevice = 1 };

struct Handle {
  CUstream stream = nullptr;
  int pointer_mode = kOnHost;
  int math_mode = 0, atomics_mode = 0, multiprocessors = 0;
  int emulation_strategy = 0, emulation_special_values = 0xffff, mantissa_control = 0;
  int mantissa_most_bits = 0, mantissa_bit_offset = 0;
  int* mantissa_bits = nullptr;
};

// Throws for a handle that was never created or is destroyed.
Handle& checked(Handle* handle);
// A number that a call takes by address. In host pointer mode it is read when the call is made, in
// device pointer mode when the call runs.
template <class T>
class Scalar {
 public:
  Scalar(const Handle& handle, const T* address, const char* argument) : argument_(argument) {
    needed(address, argument);
    if (handle.pointer_mode == kOnDevice) {
      device_ = address;
    } else if (on_device_alone(address)) {
      throw Failed{kInvalidValue, std::string(argument) +
                                      " is in device memory, but the pointer mode is "
                                      "CUBLAS_POINTER_MODE_HOST"};
    } else {
      value_ = *address;
    }
  }
  T get(Frame& frame) const { return device_ ? *frame.vector(argument_, device_, 1) : value_; }

 private:
  const char* argument_;
  const T* device_ = nullptr;
  T value_{};
};

// Numbers that a call reads and writes by address, on the host or on the device.
template <class T>
class Numbers {
 public:
  Numbers(const Handle& handle, T* address, const char* argument, i64 count = 1,
          Access access = Access::writes)
      : argument_(argument), address_(address), count_(count), access_(access) {
    needed(address, argument);
    on_device_ = handle.pointer_mode == kOnDevice;
    if (on_device_) return;
    if (on_device_alone(address)) {
      throw Failed{kInvalidValue, std::string(argument) +
                                      " is in device memory, but the pointer mode is "
                                      "CUBLAS_POINTER_MODE_HOST"};
    }
    if (is_capturing(handle.stream)) {
      throw Failed{kNotSupported, std::string(argument) +
                                      " is on the host, where a captured call cannot leave a "
                                      "result; set CUBLAS_POINTER_MODE_DEVICE"};
    }
  }
  T* get(Frame& frame) const {
    return on_device_ ? frame.vector(argument_, address_, count_, 1, access_) : address_;
  }

 private:
  const char* argument_;
  T* address_;
  i64 count_;
  Access access_;
  bool on_device_ = false;
};

// Waits for a call that leaves its result on the host, so that a fault in it shows now.
void await(const Handle& handle);

// ---- BLAS's letters for the options of a call ----

char fill(int given);
char diagonal(int given);
char side(int given);

inline void need_increment(i64 value, const char* argument) {
  if (value == 0) throw Failed{kInvalidValue, std::string(argument) + " is 0"};
}

inline i64 packed(i64 n) { return n * (n + 1) / 2; }
template <class T>
T zero_of() {
  return T{};
}

}  // namespace workbench::host

#define CUBLAS_API extern "C" __attribute__((visibility("default"))) int

// Each routine for its types, with int and, under a name that ends in _64, with int64_t.
#define BOTH_INTEGERS(routine, letter, type, suffix) \
  routine(letter, type, int, suffix) routine(letter, type, std::int64_t, suffix##_64)
#define REAL_TYPES(routine, suffix) \
  BOTH_INTEGERS(routine, S, float, suffix) BOTH_INTEGERS(routine, D, double, suffix)
#define COMPLEX_TYPES(routine, suffix)       \
  BOTH_INTEGERS(routine, C, Complex, suffix) \
  BOTH_INTEGERS(routine, Z, DoubleComplex, suffix)
#define ALL_TYPES(routine, suffix) REAL_TYPES(routine, suffix) COMPLEX_TYPES(routine, suffix)
