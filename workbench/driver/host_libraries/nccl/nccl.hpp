// The part of NCCL's binary interface that this library supports. nccl.h (NCCL 2.29) defines it.
#pragma once
#include <memory>
#include <vector>

#include "../calls.hpp"

#define NCCL_API extern "C" __attribute__((visibility("default"))) int

namespace workbench::nccl {

using host::Failed;
using host::i64;

enum Status : int {
  kSuccess = 0,
  kDriverError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

constexpr int kVersion = 22907;
constexpr std::size_t kIdBytes = 128;

// Names the folder in which the ranks of a communicator meet.
struct UniqueId {
  char text[kIdBytes];
};

// The head of ncclConfig_t; fields behind it are hints.
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, least_blocks, most_blocks;
  const char* network;
  int split_share, traffic_class;
  const char* name;
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat = 9,
  kFloat8E4 = 10,
  kFloat8E5 = 11,
  kTypes = 12,
};

// Operators of reductions; numbers from kOperators on are the client's own.
enum Operator : int {
  kSum = 0,
  kProduct = 1,
  kMaximum = 2,
  kMinimum = 3,
  kAverage = 4,
  kOperators
};

// ---- arithmetic (reductions.cpp) ----

std::size_t bytes_of(int type);
const char* name_of(int type);
const char* name_of_operator(int operation);
// Combines `count` elements of each of `parts` into `out`, in the order of ranks. float16 and
// bfloat16 are computed in float32 and rounded once.
void reduce(int type, int operation, const std::vector<const void*>& parts, u64 count, void* out);
// Multiplies elements by a number.
void scale(int type, double factor, u64 count, void* elements);
double number_at(int type, const void* address);

}  // namespace workbench::nccl
