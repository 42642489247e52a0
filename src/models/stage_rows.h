// What a stage hands to the next one of every row of a step, in one message: the residual; the
// embeddings of the layers after the first stage (LayerEmbeddingSpec), which the first stage
// computes; and the keys and values to which layers of later stages attend
// (AttentionSpec::kv_layer). Arrays of F32, one after the other:
//   [rows, hidden], [rows, embedding_layers, width], and of each of `keys` [rows, 2, kv_width].
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder_spec.h"
#include "models/shard.h"

namespace sluice {

struct StageRows {
  // A layer whose keys and values are handed on.
  struct Keys {
    int64_t layer = 0;  // of the whole model
    int64_t width = 0;  // of the heads that the rank holds
    int64_t first = 0;  // numbers of a row that stand before them
    // The rank's first layer that attends to them; -1: the rank only hands them on.
    int64_t user = -1;
  };

  // The rows of the rank at `place` among stages. The last stage hands back the residual alone.
  static StageRows For(const DecoderSpec& spec, const RankPlace& place);

  // Numbers of a row that are received from the stage before, and that are handed on.
  int64_t received() const { return WidthOf(num_received); }
  int64_t handed_on(bool is_last_stage) const {
    return is_last_stage ? hidden : WidthOf(keys.size());
  }
  // The most that a message has.
  int64_t widest() const { return WidthOf(keys.size()); }
  // Which of `keys` is the layer's; null where they are not handed on.
  const Keys* Find(int64_t layer) const;

  int64_t hidden = 0;
  int64_t first_embedding_layer = 0;  // of the whole model: that after the first stage
  int64_t embedding_layers = 0;
  int64_t embedding_width = 0;  // of a row in a layer; 0: there are none
  // By layer; the first `num_received` are from stages before.
  std::vector<Keys> keys;
  size_t num_received = 0;

 private:
  int64_t WidthOf(size_t num_keys) const;
};

}  // namespace sluice
