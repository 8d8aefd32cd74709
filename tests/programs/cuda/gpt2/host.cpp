// The forward pass as it stands in the formulas, one token's row after another.
#include <cmath>

#include "model.h"

namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }

Floats linear(const Floats& in, const Floats& weights, const Floats& bias, int ins, int outs) {
  Floats out(kTokens * outs);
  for (int t = 0; t < kTokens; ++t) {
    for (int o = 0; o < outs; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int i = 0; i < ins; ++i) sum += double{in[t * ins + i]} * weights[o * ins + i];
      out[t * outs + o] = sum;
    }
  }
  return out;
}

Floats normalised(Floats rows) {
  for (int t = 0; t < kTokens; ++t) {
    double mean = 0, variance = 0;
    float* row = &rows[t * kChannels];
    for (int i = 0; i < kChannels; ++i) mean += row[i] / double{kChannels};
    for (int i = 0; i < kChannels; ++i) variance += (row[i] - mean) * (row[i] - mean) / kChannels;
    for (int i = 0; i < kChannels; ++i) row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5);
  }
  return rows;
}

Floats attention(const Floats& qkv) {
  Floats out(kTokens * kChannels);
  const auto at = [&](int part, int t, int head, int i) {
    return double{qkv[t * 3 * kChannels + part * kChannels + head * kHead + i]};
  };
  for (int head = 0; head < kHeads; ++head) {
    for (int t = 0; t < kTokens; ++t) {
      double weights[kTokens] = {}, sum = 0;
      for (int s = 0; s <= t; ++s) {
        for (int i = 0; i < kHead; ++i) weights[s] += at(0, t, head, i) * at(1, s, head, i);
        sum += weights[s] = std::exp(weights[s] / std::sqrt(double{kHead}));
      }
      for (int s = 0; s <= t; ++s) {
        for (int i = 0; i < kHead; ++i) out[t * kChannels + head * kHead + i] += weights[s] / sum * at(2, s, head, i);
      }
    }
  }
  return out;
}

}  // namespace

Floats forward_on_host(const Model& model, const std::vector<int>& tokens) {
  Floats x(kTokens * kChannels);
  for (int i = 0; i < kTokens * kChannels; ++i) {
    x[i] = model.words[tokens[i / kChannels] * kChannels + i % kChannels] + model.places[i];
  }
  const auto add = [&](const Floats& more) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += more[i];
  };
  for (const Layer& layer : model.layers) {
    const Floats qkv = linear(normalised(x), layer.qkv, layer.qkv_bias, kChannels, 3 * kChannels);
    add(linear(attention(qkv), layer.projection, layer.projection_bias, kChannels, kChannels));
    Floats wide = linear(normalised(x), layer.up, layer.up_bias, kChannels, 4 * kChannels);
    for (float& value : wide) value = gelu(value);
    add(linear(wide, layer.down, layer.down_bias, 4 * kChannels, kChannels));
  }
  return linear(normalised(x), model.words, {}, kChannels, kVocabulary);
}
