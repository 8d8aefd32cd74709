// The host API of cuRAND. Statuses, generators and orders have the numbers of curand.h, which is
// not needed to build this library.
#include <cmath>
#include <memory>
#include <mutex>

#include "../live.hpp"
#include "engines.hpp"

#define CURAND_API extern "C" __attribute__((visibility("default"))) int

namespace workbench::host {
namespace {

enum Status : int {
  kSuccess = 0,
  kNotInitialized = 101,
  kAllocationFailed = 102,
  kTypeError = 103,
  kOutOfRange = 104,
  kLaunchFailure = 201,
  kInitializationFailed = 203,
  kInternalError = 999,
};

enum Kind : int {
  kDefault = 100,
  kXorwow = 101,
  kMrg32k3a = 121,
  kMtgp32 = 141,
  kMt19937 = 142,
  kPhilox = 161,
};

constexpr int kVersion = 10400;
constexpr int kFirstOrder = 100, kLastOrder = 104;

// The source of numbers of a running call; a graph may keep it longer than its handle lives.
struct Sequence {
  std::mutex mutex;
  std::unique_ptr<Engine> engine;
  u64 position = 0;  // index of the next result
};

struct Generator {
  int kind;
  bool on_host;
  CUstream stream = nullptr;
  u64 seed = 0, offset = 0;
  std::shared_ptr<Sequence> sequence = std::make_shared<Sequence>();
};

Generator& checked(Generator* generator) {
  return Live<Generator>::all().checked(generator, kNotInitialized, "generator");
}

int status_of(CUresult) noexcept { return kLaunchFailure; }

constexpr Statuses kStatuses{kAllocationFailed, kInternalError, 0, status_of};

template <class Body>
int call(const char* name, Body&& body) noexcept {
  return framed(kStatuses, name, std::forward<Body>(body));
}

// cuRAND has no status for an unsupported feature.
[[noreturn]] void refuse(const std::string& why) { throw Failed{kTypeError, why, true}; }

std::unique_ptr<Engine> engine_of(int kind, u64 seed, u64 offset) {
  switch (kind) {
    case kXorwow: return make_xorwow(seed, offset);
    case kMrg32k3a: return make_mrg32k3a(seed, offset);
    case kMt19937: return make_mt19937(seed, offset);
    default: return make_philox(seed, offset);
  }
}

// Makes the next numbers start at the beginning of the sequence.
void restart(Generator& generator) { generator.sequence = std::make_shared<Sequence>(); }

int create(const char* name, Generator** out, int kind, bool on_host) {
  return call(name, [&] {
    if (!out) throw Failed{kNotInitialized, "generator is a null pointer"};
    if (kind == kDefault) kind = kXorwow;
    if (kind == kMtgp32)
      refuse("CURAND_RNG_PSEUDO_MTGP32; use CURAND_RNG_PSEUDO_MT19937 or _PHILOX4_32_10");
    if (kind >= 200 && kind <= 204)
      refuse(
          "quasi-random generators; use a pseudo-random one such as "
          "CURAND_RNG_PSEUDO_PHILOX4_32_10");
    if (kind != kXorwow && kind != kMrg32k3a && kind != kMt19937 && kind != kPhilox)
      throw Failed{kTypeError, "no such kind of generator: " + std::to_string(kind)};
    if (!on_host && need_context())
      throw Failed{kInitializationFailed, "the device has no context"};
    auto made = std::make_unique<Generator>();
    made->kind = kind;
    made->on_host = on_host;
    *out = Live<Generator>::all().add(std::move(made));
  });
}

// ---- distributions ----

// Random bits of one result, for a distribution that needs a varying number of them.
class Mixer {
 public:
  using result_type = u64;
  explicit Mixer(u64 state) : state_(state) {}
  static constexpr u64 min() { return 0; }
  static constexpr u64 max() { return ~u64{0}; }
  // S. Vigna's SplitMix64.
  u64 operator()() {
    u64 mixed = state_ += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

 private:
  u64 state_;
};

template <class T>
T normal(Engine& engine, u64 index, T mean, T deviation) {
  const Engine::Pair pair =
      sizeof(T) == sizeof(float) ? engine.pair(index / 2) : engine.pair_double(index / 2);
  const T radius = std::sqrt(T(-2) * std::log(static_cast<T>(pair.radius)));
  const auto turn = static_cast<T>(pair.angle);
  return mean + deviation * radius * (index % 2 ? std::cos(turn) : std::sin(turn));
}

// Writes `count` results to `out`; `next(engine, index)` computes one.
template <class T, class Next>
int generate(const char* name, Generator* generator, T* out, std::size_t count, Next next) {
  return call(name, [&] {
    const Generator& own = checked(generator);
    const auto make = [next, count, kind = own.kind, seed = own.seed, offset = own.offset,
                       sequence = own.sequence](T* to) {
      std::lock_guard lock(sequence->mutex);
      if (!sequence->engine) sequence->engine = engine_of(kind, seed, offset);
      for (std::size_t i = 0; i < count; ++i)
        to[i] = next(*sequence->engine, sequence->position + i);
      sequence->position += count;
    };
    if (!count) return;
    if (own.on_host) {
      if (!out || on_device_alone(out))
        throw Failed{kLaunchFailure,
                     "outputPtr is in device memory; curandCreateGenerator makes "
                     "a generator for the device"};
      return make(out);
    }
    enqueue(own.stream, name, sizes({{"n", static_cast<i64>(count)}}), [=](Frame& frame) {
      make(frame.vector("outputPtr", out, static_cast<i64>(count), 1, Access::writes));
    });
  });
}

}  // namespace
}  // namespace workbench::host

using namespace workbench::host;

CURAND_API curandCreateGenerator(Generator** out, int kind) {
  return create("curandCreateGenerator", out, kind, false);
}
CURAND_API curandCreateGeneratorHost(Generator** out, int kind) {
  return create("curandCreateGeneratorHost", out, kind, true);
}
CURAND_API curandDestroyGenerator(Generator* generator) {
  return call("curandDestroyGenerator", [&] {
    checked(generator);
    Live<Generator>::all().destroy(generator);
  });
}
CURAND_API curandSetStream(Generator* generator, CUstream stream) {
  return call("curandSetStream", [&] { checked(generator).stream = stream; });
}
CURAND_API curandSetPseudoRandomGeneratorSeed(Generator* generator, u64 seed) {
  return call("curandSetPseudoRandomGeneratorSeed", [&] {
    checked(generator).seed = seed;
    restart(*generator);
  });
}
CURAND_API curandSetGeneratorOffset(Generator* generator, u64 offset) {
  return call("curandSetGeneratorOffset", [&] {
    checked(generator).offset = offset;
    restart(*generator);
  });
}
// All orderings are the legacy one, which NVIDIA keeps the same in all releases.
CURAND_API curandSetGeneratorOrdering(Generator* generator, int order) {
  return call("curandSetGeneratorOrdering", [&] {
    checked(generator);
    if (order < kFirstOrder || order > kLastOrder)
      throw Failed{kOutOfRange, "the order is " + std::to_string(order) +
                                    ", allowed are those of pseudo-random generators, 100 to 104"};
  });
}
CURAND_API curandSetQuasiRandomGeneratorDimensions(Generator* generator, unsigned) {
  return call(__func__, [&] {
    checked(generator);
    throw Failed{kTypeError, "the generator is pseudo-random"};
  });
}
CURAND_API curandGenerateSeeds(Generator* generator) {
  return call("curandGenerateSeeds", [&] { checked(generator); });
}

CURAND_API curandGenerate(Generator* generator, u32* out, std::size_t count) {
  return generate("curandGenerate", generator, out, count,
                  [](Engine& engine, u64 index) { return engine.bits(index); });
}
CURAND_API curandGenerateLongLong(Generator* generator, u64*, std::size_t) {
  return call("curandGenerateLongLong", [&] {
    checked(generator);
    throw Failed{kTypeError,
                 "only 64-bit quasi-random generators make 64-bit numbers; use "
                 "curandGenerate for twice as many of 32"};
  });
}
CURAND_API curandGenerateUniform(Generator* generator, float* out, std::size_t count) {
  return generate("curandGenerateUniform", generator, out, count,
                  [](Engine& engine, u64 index) { return engine.uniform(index); });
}
CURAND_API curandGenerateUniformDouble(Generator* generator, double* out, std::size_t count) {
  return generate("curandGenerateUniformDouble", generator, out, count,
                  [](Engine& engine, u64 index) { return engine.uniform_double(index); });
}

#define NORMALS(suffix, T)                                                                         \
  CURAND_API curandGenerateNormal##suffix(Generator* generator, T* out, std::size_t count, T mean, \
                                          T deviation) {                                           \
    return generate(                                                                               \
        "curandGenerateNormal" #suffix, generator, out, count,                                     \
        [=](Engine& engine, u64 index) { return normal<T>(engine, index, mean, deviation); });     \
  }                                                                                                \
  CURAND_API curandGenerateLogNormal##suffix(Generator* generator, T* out, std::size_t count,      \
                                             T mean, T deviation) {                                \
    return generate("curandGenerateLogNormal" #suffix, generator, out, count,                      \
                    [=](Engine& engine, u64 index) {                                               \
                      return std::exp(normal<T>(engine, index, mean, deviation));                  \
                    });                                                                            \
  }
NORMALS(, float)
NORMALS(Double, double)

CURAND_API curandGeneratePoisson(Generator* generator, u32* out, std::size_t count, double lambda) {
  constexpr double kMost = 1u << 30;
  if (!(lambda > 0 && lambda < kMost))
    return failed("curandGeneratePoisson", kOutOfRange, "lambda must be positive, and below 2^30");
  return generate("curandGeneratePoisson", generator, out, count, [=](Engine& engine, u64 index) {
    const u64 high = engine.bits(2 * index);
    Mixer mixer(high << 32 | engine.bits(2 * index + 1));
    std::poisson_distribution<i64> distribution(lambda);
    return static_cast<u32>(distribution(mixer));
  });
}
CURAND_API curandGeneratePoissonMethod(Generator* generator, u32* out, std::size_t count,
                                       double lambda, int) {
  return curandGeneratePoisson(generator, out, count, lambda);
}

CURAND_API curandGetVersion(int* version) {
  return call("curandGetVersion", [&] {
    if (!version) throw Failed{kOutOfRange, "version is a null pointer"};
    *version = kVersion;
  });
}
CURAND_API curandGetProperty(int which, int* value) {
  return call("curandGetProperty", [&] {
    const int parts[] = {kVersion / 1000, kVersion / 100 % 10, kVersion % 100};
    if (which < 0 || which > 2 || !value) throw Failed{kOutOfRange, "the property is 0, 1 or 2"};
    *value = parts[which];
  });
}

// ---- not supported ----

#define REFUSED(name, why)                   \
  CURAND_API name() {                        \
    return call(#name, [] { refuse(why); }); \
  }
REFUSED(curandCreatePoissonDistribution,
        "call curandGeneratePoisson on the host, or curand_poisson in a kernel")
REFUSED(curandDestroyDistribution, "there are no tables of distributions")
REFUSED(curandGetDirectionVectors32, "quasi-random sequences; use a pseudo-random generator")
REFUSED(curandGetDirectionVectors64, "quasi-random sequences; use a pseudo-random generator")
REFUSED(curandGetScrambleConstants32, "quasi-random sequences; use a pseudo-random generator")
REFUSED(curandGetScrambleConstants64, "quasi-random sequences; use a pseudo-random generator")
