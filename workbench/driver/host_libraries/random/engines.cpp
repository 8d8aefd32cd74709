// XORWOW, MRG32k3a and Philox produce the sequences of NVIDIA's library on the host, to the bit for
// raw and uniform numbers; tests/programs/cuda/curand_sequences.cu compares them with NVIDIA's
// device code. MT19937 is the standard generator's own sequence, while NVIDIA's library distributes
// it over 8192 lanes.
//
// G. Marsaglia, Xorshift RNGs, 2003. P. L'Ecuyer, Good parameters and implementations for combined
// multiple recursive random number generators, 1999. J. K. Salmon et al., Parallel random numbers:
// as easy as 1, 2, 3, 2011.
#include "engines.hpp"

#include <algorithm>

namespace workbench::host {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr float kUnit = 2.3283064e-10f;  // 2^-32
constexpr double kUnitDouble = 1.0 / (u64{1} << 53);

float unit(u32 x) { return static_cast<float>(x) * kUnit + kUnit / 2; }
float angle(u32 x) {
  constexpr float kTurn = kUnit * 2 * static_cast<float>(kPi);
  return static_cast<float>(x) * kTurn + kTurn / 2;
}
double unit_double(u32 x, u32 y) {
  return static_cast<double>(x ^ (u64{y} << 21)) * kUnitDouble + kUnitDouble / 2;
}

// ---- Philox: each lane gives four numbers in turn; a number depends on its index only ----

constexpr u64 kPhiloxLanes = 65536;
constexpr u64 kPhiloxWords = 4;

class Philox final : public Engine {
 public:
  Philox(u64 seed, u64 offset)
      : seed_(seed),
        word_(offset % kPhiloxWords),
        first_(offset / kPhiloxWords % kPhiloxLanes),
        skipped_(offset / (kPhiloxWords * kPhiloxLanes)) {}

  u32 bits(u64 index) override {
    const u64 turns = (index + word_) / kPhiloxWords;
    return raw(turns, turns / kPhiloxLanes, (index + word_) % kPhiloxWords);
  }
  float uniform(u64 index) override { return unit(bits(index)); }
  // A lane computes four doubles at once, from two blocks.
  double uniform_double(u64 index) override {
    const u64 turns = (index + word_) / kPhiloxWords, within = (index + word_) % kPhiloxWords;
    const u64 block = 2 * (turns / kPhiloxLanes) + within / 2;
    const u32 low = raw(turns, block, 2 * (within % 2));
    return unit_double(low, raw(turns, block, 2 * (within % 2) + 1));
  }
  Pair pair(u64 index) override {
    const u32 first = bits(2 * index);
    return {unit(first), angle(bits(2 * index + 1))};
  }
  Pair pair_double(u64 index) override {
    const double first = uniform_double(2 * index);
    return {first, 2 * kPi * uniform_double(2 * index + 1)};
  }

 private:
  // A word of a block of the lane whose turn it is. Lanes before the offset have skipped one block.
  u32 raw(u64 turns, u64 block, u64 word) {
    const u64 lane = (first_ + turns) % kPhiloxLanes;
    block += skipped_ + (lane < first_ ? 1 : 0);
    if (lane != lane_ || block != block_) {
      lane_ = lane;
      block_ = block;
      fill();
    }
    return words_[word];
  }

  void fill() {
    constexpr u64 kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    constexpr u32 kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
    constexpr int kRounds = 10;
    u32 key0 = static_cast<u32>(seed_), key1 = static_cast<u32>(seed_ >> 32);
    std::array<u32, 4> c{static_cast<u32>(block_), static_cast<u32>(block_ >> 32),
                         static_cast<u32>(lane_), static_cast<u32>(lane_ >> 32)};
    for (int round = 0; round < kRounds; ++round) {
      const u64 first = kMultiplier0 * c[0], second = kMultiplier1 * c[2];
      c = {static_cast<u32>(second >> 32) ^ c[1] ^ key0, static_cast<u32>(second),
           static_cast<u32>(first >> 32) ^ c[3] ^ key1, static_cast<u32>(first)};
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    words_ = c;
  }

  u64 seed_, word_, first_, skipped_, lane_ = ~u64{0}, block_ = 0;
  std::array<u32, 4> words_{};
};

// ---- recurrences: each lane has a state, and all lanes advance together, round by round ----

// `Lanes` has kCount, go_to(round), and step(out), which writes a number of every lane. Lanes are
// in the order in which they come after the offset; those before it are one step ahead.
template <class Lanes>
class Rounds : public Engine {
 public:
  Rounds(u64 seed, u64 offset) : lanes_(seed, offset) {}

 protected:
  // Result `index` takes `each` numbers from its lane; returns the `which`-th of them.
  u64 raw(u64 index, u64 each, u64 which) {
    const u64 turn = index / Lanes::kCount;
    if (turn != turn_ || each != each_) {
      lanes_.go_to(turn * each);
      rows_.resize(each);
      for (auto& row : rows_) {
        row.resize(Lanes::kCount);
        lanes_.step(row);
      }
      turn_ = turn;
      each_ = each;
    }
    return rows_[which][index % Lanes::kCount];
  }

 private:
  Lanes lanes_;
  u64 turn_ = ~u64{0}, each_ = 0;
  std::vector<std::vector<u64>> rows_;
};

constexpr int kBits = 160;
using i64 = std::int64_t;
using Bits = std::array<u32, 5>;

// A linear map on XORWOW's 160 bits, as the image of each bit.
struct Map {
  std::array<Bits, kBits> columns;

  Bits operator()(const Bits& from) const {
    Bits to{};
    for (int bit = 0; bit < kBits; ++bit) {
      if (!(from[static_cast<std::size_t>(bit / 32)] >> (bit % 32) & 1)) continue;
      for (std::size_t word = 0; word < to.size(); ++word)
        to[word] ^= columns[static_cast<std::size_t>(bit)][word];
    }
    return to;
  }
  Map squared() const {
    Map made{};
    std::ranges::transform(columns, made.columns.begin(), *this);
    return made;
  }
};

Bits shifted(const Bits& v) {
  const u32 t = v[0] ^ (v[0] >> 2);
  return {v[1], v[2], v[3], v[4], (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1))};
}

Map one_step() {
  Map made{};
  for (int bit = 0; bit < kBits; ++bit) {
    Bits unit_vector{};
    unit_vector[static_cast<std::size_t>(bit / 32)] = u32{1} << (bit % 32);
    made.columns[static_cast<std::size_t>(bit)] = shifted(unit_vector);
  }
  return made;
}

// Lanes begin 2^67 steps apart.
const Map& apart() {
  static const Map map = [] {
    Map made = one_step();
    for (int i = 0; i < 67; ++i) made = made.squared();
    return made;
  }();
  return map;
}

constexpr u64 kFewSteps = 256;

struct XorwowLanes {
  static constexpr u64 kCount = 4096;
  static constexpr u32 kWeyl = 362437;

  XorwowLanes(u64 seed, u64 given) : offset(given) {
    const u32 low = static_cast<u32>(seed) ^ 0xaad26b49u,
              high = static_cast<u32>(seed >> 32) ^ 0xf7dcefddu;
    const u32 t0 = 1099087573u * low, t1 = 2591861531u * high;
    weyl = 6615241u + t1 + t0;
    first = {123456789u + t0, 362436069u ^ t0, 521288629u + t1, 88675123u ^ t1, 5783321u + t0};
    restart();
  }
  void restart() {
    states.resize(kCount);
    states[0] = first;
    for (std::size_t lane = 1; lane < kCount; ++lane) states[lane] = apart()(states[lane - 1]);
    round = 0;
    go_to(offset / kCount);
    for (std::size_t lane = 0; lane < offset % kCount; ++lane) states[lane] = shifted(states[lane]);
    std::rotate(states.begin(), states.begin() + static_cast<i64>(offset % kCount), states.end());
    round = 0;
  }
  void go_to(u64 wanted) {
    if (wanted < round) restart();
    if (wanted - round <= kFewSteps) {
      for (; round < wanted; ++round) std::ranges::transform(states, states.begin(), shifted);
      return;
    }
    Map power = one_step();
    for (u64 rest = wanted - round; rest; rest >>= 1, power = power.squared())
      if (rest & 1) std::ranges::transform(states, states.begin(), power);
    round = wanted;
  }
  void step(std::vector<u64>& out) {
    ++round;
    u32 added = weyl + kWeyl * static_cast<u32>(round + offset / kCount);
    for (std::size_t lane = 0; lane < kCount; ++lane) {
      if (lane == kCount - offset % kCount) added += kWeyl;
      states[lane] = shifted(states[lane]);
      out[lane] = static_cast<u32>(added + states[lane][4]);
    }
  }

  u64 offset;
  u32 weyl;
  Bits first;
  u64 round = 0;
  std::vector<Bits> states;
};

using Vector = std::array<u64, 3>;
using Matrix = std::array<Vector, 3>;
constexpr u64 kFirstModulus = 4294967087, kSecondModulus = 4294944443;
constexpr Matrix kFirst{{{0, 1, 0}, {0, 0, 1}, {kFirstModulus - 810728, 1403580, 0}}};
constexpr Matrix kSecond{{{0, 1, 0}, {0, 0, 1}, {kSecondModulus - 1370589, 0, 527612}}};

Vector times(const Matrix& matrix, const Vector& vector, u64 modulus) {
  Vector made{};
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < 3; ++i)
      made[row] = (made[row] + matrix[row][i] * vector[i] % modulus) % modulus;
  return made;
}

Matrix times(const Matrix& one, const Matrix& two, u64 modulus) {
  Matrix made{};
  for (std::size_t column = 0; column < 3; ++column) {
    const Vector image =
        times(one, Vector{two[0][column], two[1][column], two[2][column]}, modulus);
    for (std::size_t row = 0; row < 3; ++row) made[row][column] = image[row];
  }
  return made;
}

// The matrix to the power of `factor` * 2^`doublings`.
Matrix power(Matrix matrix, u64 factor, int doublings, u64 modulus) {
  for (int i = 0; i < doublings; ++i) matrix = times(matrix, matrix, modulus);
  Matrix made{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
  for (; factor; factor >>= 1, matrix = times(matrix, matrix, modulus))
    if (factor & 1) made = times(matrix, made, modulus);
  return made;
}

struct MrgLanes {
  static constexpr u64 kCount = 81920;
  static constexpr int kApart = 76;  // lanes begin 2^76 steps apart
  struct State {
    Vector first, second;
  };

  MrgLanes(u64 seed, u64 given) : offset(given) {
    const u64 low = (seed & 0xffffffffu) ^ 0x55555555u, high = (seed >> 32) ^ 0xAAAAAAAAu;
    constexpr u64 kStart = 12345;
    const auto one = [&](u64 by) { return seed ? by * kStart % kFirstModulus : kStart; };
    const auto two = [&](u64 by) { return seed ? by * kStart % kSecondModulus : kStart; };
    begin = {{one(low), one(high), one(low)}, {two(high), two(low), two(high)}};
    restart();
  }
  void restart() {
    const Matrix first = power(kFirst, 1, kApart, kFirstModulus);
    const Matrix second = power(kSecond, 1, kApart, kSecondModulus);
    states.resize(kCount);
    states[0] = begin;
    for (std::size_t lane = 1; lane < kCount; ++lane)
      states[lane] = {times(first, states[lane - 1].first, kFirstModulus),
                      times(second, states[lane - 1].second, kSecondModulus)};
    round = 0;
    go_to(offset / kCount);
    for (std::size_t lane = 0; lane < offset % kCount; ++lane)
      states[lane] = {times(kFirst, states[lane].first, kFirstModulus),
                      times(kSecond, states[lane].second, kSecondModulus)};
    std::rotate(states.begin(), states.begin() + static_cast<i64>(offset % kCount), states.end());
    round = 0;
  }
  void go_to(u64 wanted) {
    if (wanted < round) restart();
    if (wanted == round) return;
    const Matrix first = power(kFirst, wanted - round, 0, kFirstModulus);
    const Matrix second = power(kSecond, wanted - round, 0, kSecondModulus);
    for (State& state : states)
      state = {times(first, state.first, kFirstModulus),
               times(second, state.second, kSecondModulus)};
    round = wanted;
  }
  void step(std::vector<u64>& out) {
    ++round;
    for (std::size_t lane = 0; lane < kCount; ++lane) {
      auto& [one, two] = states[lane];
      const u64 a =
          (1403580 * one[1] + (kFirstModulus - 810728) * one[0] % kFirstModulus) % kFirstModulus;
      const u64 b =
          (527612 * two[2] + (kSecondModulus - 1370589) * two[0] % kSecondModulus) % kSecondModulus;
      one = {one[1], one[2], a};
      two = {two[1], two[2], b};
      out[lane] = a > b ? a - b : a + kFirstModulus - b;
    }
  }

  u64 offset;
  State begin;
  u64 round = 0;
  std::vector<State> states;
};

class Mrg final : public Rounds<MrgLanes> {
 public:
  using Rounds::Rounds;
  static constexpr double kNorm = 2.328306549295727688e-10;  // 1 / the first modulus
  static constexpr double kToBits = 1.000000048662;          // 2^32 / the first modulus

  u32 bits(u64 index) override {
    return static_cast<u32>(static_cast<double>(raw(index, 1, 0)) * kToBits);
  }
  float uniform(u64 index) override { return static_cast<float>(uniform_double(index)); }
  double uniform_double(u64 index) override {
    return static_cast<double>(raw(index, 1, 0)) * kNorm;
  }
  Pair pair(u64 index) override { return pair_double(index); }
  Pair pair_double(u64 index) override {
    const double first = static_cast<double>(raw(index, 2, 0)) * kNorm;
    return {first, 2 * kPi * static_cast<double>(raw(index, 2, 1)) * kNorm};
  }
};

// One generator, whose numbers are distributed over the lanes in turn.
struct MtLanes {
  static constexpr u64 kCount = 8192;
  MtLanes(u64 seed, u64 given) : from(static_cast<u32>(seed)), offset(given) { restart(); }
  void restart() {
    engine.seed(from);
    engine.discard(offset);
    round = 0;
  }
  void go_to(u64 wanted) {
    if (wanted < round) restart();
    engine.discard((wanted - round) * kCount);
    round = wanted;
  }
  void step(std::vector<u64>& out) {
    ++round;
    for (u64& number : out) number = static_cast<u32>(engine());
  }

  u32 from;
  u64 offset, round = 0;
  std::mt19937 engine;
};

// Lanes of 32-bit numbers.
template <class Lanes>
class Words final : public Rounds<Lanes> {
 public:
  using Rounds<Lanes>::Rounds;
  u32 bits(u64 index) override { return static_cast<u32>(this->raw(index, 1, 0)); }
  float uniform(u64 index) override { return unit(bits(index)); }
  double uniform_double(u64 index) override { return two(index, 2, 0); }
  Engine::Pair pair(u64 index) override {
    const auto first = static_cast<u32>(this->raw(index, 2, 0));
    return {unit(first), angle(static_cast<u32>(this->raw(index, 2, 1)))};
  }
  Engine::Pair pair_double(u64 index) override {
    const double first = two(index, 4, 0);
    return {first, 2 * kPi * two(index, 4, 2)};
  }

 private:
  double two(u64 index, u64 each, u64 which) {
    const auto low = static_cast<u32>(this->raw(index, each, which));
    return unit_double(low, static_cast<u32>(this->raw(index, each, which + 1)));
  }
};

}  // namespace

std::unique_ptr<Engine> make_philox(u64 seed, u64 offset) {
  return std::make_unique<Philox>(seed, offset);
}
std::unique_ptr<Engine> make_xorwow(u64 seed, u64 offset) {
  return std::make_unique<Words<XorwowLanes>>(seed, offset);
}
std::unique_ptr<Engine> make_mrg32k3a(u64 seed, u64 offset) {
  return std::make_unique<Mrg>(seed, offset);
}
std::unique_ptr<Engine> make_mt19937(u64 seed, u64 offset) {
  return std::make_unique<Words<MtLanes>>(seed, offset);
}

}  // namespace workbench::host
