// Counter-based and recurrent generators, as cuRAND has them. A sequence is dealt to lanes, as to
// the threads of a kernel: result n is of lane n modulo their number.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace workbench::host {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Numbers by their index in the sequence; which raw ones a result takes is the engine's own.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual u32 bits(u64 index) = 0;
  virtual float uniform(u64 index) = 0;
  virtual double uniform_double(u64 index) = 0;
  // Two uniform numbers for two normal ones. The second is an angle.
  struct Pair {
    double radius, angle;
  };
  virtual Pair pair(u64 index) = 0;
  virtual Pair pair_double(u64 index) = 0;
};

// `offset` raw numbers of the whole sequence are left out, so that a later lane may come first.
std::unique_ptr<Engine> make_philox(u64 seed, u64 offset);
std::unique_ptr<Engine> make_xorwow(u64 seed, u64 offset);
std::unique_ptr<Engine> make_mrg32k3a(u64 seed, u64 offset);
std::unique_ptr<Engine> make_mt19937(u64 seed, u64 offset);

}  // namespace workbench::host
