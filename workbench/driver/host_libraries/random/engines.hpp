// cuRAND's counter-based and recurrent generators. A sequence is distributed over lanes, as over
// the threads of a kernel: result n comes from lane n modulo the number of lanes.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace workbench::host {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// A generator of numbers by their index in the sequence; the engine decides which raw numbers make
// a result.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual u32 bits(u64 index) = 0;
  virtual float uniform(u64 index) = 0;
  virtual double uniform_double(u64 index) = 0;
  // Two uniform numbers, the second an angle, for two normal ones (Box-Muller).
  struct Pair {
    double radius, angle;
  };
  virtual Pair pair(u64 index) = 0;
  virtual Pair pair_double(u64 index) = 0;
};

// `offset` raw numbers of the whole sequence are skipped, so a later lane may come first.
std::unique_ptr<Engine> make_philox(u64 seed, u64 offset);
std::unique_ptr<Engine> make_xorwow(u64 seed, u64 offset);
std::unique_ptr<Engine> make_mrg32k3a(u64 seed, u64 offset);
std::unique_ptr<Engine> make_mt19937(u64 seed, u64 offset);

}  // namespace workbench::host
