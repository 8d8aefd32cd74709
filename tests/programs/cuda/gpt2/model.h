// The shape and the weights of a small GPT-2, shared by both of its forward passes.
#pragma once
#include <vector>

constexpr int kLayers = 2, kTokens = 7, kChannels = 24, kHeads = 3, kHead = kChannels / kHeads, kVocabulary = 50;
using Floats = std::vector<float>;

struct Layer {
  Floats qkv, qkv_bias, projection, projection_bias, up, up_bias, down, down_bias;  // [out, in] and [out]
};

struct Model {
  Floats words, places;
  Layer layers[kLayers];
};

inline Floats random_floats(int n, float scale) {
  static unsigned state = 1;
  Floats values(n);
  for (float& value : values) value = scale * (((state = 1664525u * state + 1013904223u) >> 8) / float(1 << 23) - 1);
  return values;
}

inline Model random_model() {
  Model model{random_floats(kVocabulary * kChannels, 1), random_floats(kTokens * kChannels, 0.5f), {}};
  for (Layer& layer : model.layers) {
    const int c = kChannels;
    layer = {random_floats(3 * c * c, 0.4f), random_floats(3 * c, 0.2f),     random_floats(c * c, 0.4f),
             random_floats(c, 0.2f),         random_floats(4 * c * c, 0.4f), random_floats(4 * c, 0.2f),
             random_floats(4 * c * c, 0.2f), random_floats(c, 0.2f)};
  }
  return model;
}

Floats forward_on_host(const Model& model, const std::vector<int>& tokens);
