#include "models/stage_rows.h"

#include <algorithm>
#include <iterator>

namespace sluice {

StageRows StageRows::For(const DecoderSpec& spec, const RankPlace& place,
                         const HandedRows& handed) {
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  const RowRange layers = LayersOf(spec, place);
  StageRows rows;
  rows.hidden = spec.hidden_size;
  if (place.num_stages > 1) rows.handed = std::ssize(handed.layers) * spec.hidden_size;
  rows.first_embedding_layer = CutLayers(num_layers, 0, place.num_stages).end;
  rows.embedding_width = spec.layer_embeddings.width;
  if (rows.embedding_width > 0) rows.embedding_layers = num_layers - rows.first_embedding_layer;
  const auto stage_end = [&](int64_t layer) {
    int stage = 0;
    while (layer >= CutLayers(num_layers, stage, place.num_stages).end) ++stage;
    return CutLayers(num_layers, stage, place.num_stages).end;
  };
  for (int64_t source = 0; source < layers.end; ++source) {
    const auto attends = [&](int64_t layer) {
      return spec.layers[static_cast<size_t>(layer)].attention.kv_layer == source;
    };
    int64_t last_user = num_layers - 1;
    while (last_user > source && !attends(last_user)) --last_user;
    if (last_user < stage_end(source)) continue;
    const AttentionSpec& attention = spec.layers[static_cast<size_t>(source)].attention;
    const HeadCut heads = CutHeads(attention, place.tensor_rank, place.tensor_size);
    Keys& keys = rows.keys.emplace_back();
    keys.layer = source;
    keys.width = heads.kv.size() * attention.head_dim;
    keys.first = rows.WidthOf(rows.keys.size() - 1);
    if (source >= layers.begin) continue;
    rows.num_received = rows.keys.size();
    int64_t user = layers.begin;
    while (user < layers.end && !attends(user)) ++user;
    if (user < layers.end) keys.user = user - layers.begin;
  }
  return rows;
}

const StageRows::Keys* StageRows::Find(int64_t layer) const {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const Keys& other) { return other.layer == layer; });
  return found == keys.end() ? nullptr : &*found;
}

int64_t StageRows::WidthOf(size_t num_keys) const {
  int64_t width = hidden + handed + embedding_layers * embedding_width;
  for (size_t i = 0; i < num_keys; ++i) width += 2 * keys[i].width;
  return width;
}

}  // namespace sluice
