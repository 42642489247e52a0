#include "models/decoder_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

float AttentionSpec::softmax_scale() const {
  return scale.value_or(1 / std::sqrt(static_cast<float>(head_dim)));
}

void DecoderSpec::FitRope(int64_t max_context) {
  if (!long_rope_table.empty() && max_context > short_context)
    rope_tables.front() = long_rope_table;
}

int64_t DecoderSpec::NumMoeLayers() const {
  return std::count_if(layers.begin(), layers.end(),
                       [](const LayerSpec& layer) { return layer.moe.has_value(); });
}

const LayerSpec* DecoderSpec::FirstMoeLayer() const {
  const auto found = std::find_if(layers.begin(), layers.end(),
                                  [](const LayerSpec& layer) { return layer.moe.has_value(); });
  return found == layers.end() ? nullptr : &*found;
}

bool DecoderSpec::KeepsStates() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    const auto& latent = layer.attention.latent;
    return layer.mixer || (latent && latent->makes_entries());
  });
}

bool DecoderSpec::HasUniformHeads() const {
  const AttentionSpec& first = WidestKeys();
  return std::all_of(layers.begin(), layers.end(), [&](const LayerSpec& layer) {
    const AttentionSpec& attention = layer.attention;
    if (!attention.exists()) return true;
    return attention.num_heads == first.num_heads && attention.num_kv_heads == first.num_kv_heads &&
           attention.head_dim == first.head_dim && attention.has_own_kv();
  });
}

int64_t DecoderSpec::NumKvLayers() const {
  return std::count_if(layers.begin(), layers.end(),
                       [](const LayerSpec& layer) { return layer.attention.has_own_kv(); });
}

const AttentionSpec& DecoderSpec::WidestKeys() const {
  return std::max_element(layers.begin(), layers.end(),
                          [](const LayerSpec& a, const LayerSpec& b) {
                            const auto width = [](const AttentionSpec& attention) {
                              return std::pair(attention.kv_width(),
                                               attention.block_indexer.has_value());
                            };
                            return width(a.attention) < width(b.attention);
                          })
      ->attention;
}

int DecoderSpec::LargestHeadDim() const {
  int largest = 0;
  for (const LayerSpec& layer : layers) largest = std::max(largest, layer.attention.head_dim);
  return largest;
}

bool DecoderSpec::SplitsInputs(ElementType compute_type) const {
  return compute_type == ElementType::kBF16 && NumMoeLayers() > 0;
}

}  // namespace sluice
