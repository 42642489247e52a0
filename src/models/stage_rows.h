// The content of the message that a stage sends to the next one, for every row of a step: the
// residual; the per-layer embeddings for layers after the first stage (LayerEmbeddingSpec), which
// the first stage computes; and the keys and values to which layers of later stages attend
// (AttentionSpec::kv_layer). F32 arrays in this order:
//   [rows, hidden], [rows, handed], [rows, embedding_layers, width], and [rows, 2, kv_width] for
//   each of `keys`. `handed`: width of the hidden rows of HandedRows::layers that have been
//   computed.
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder_spec.h"
#include "models/drafter_spec.h"
#include "models/shard.h"

namespace sluice {

struct StageRows {
  // A layer whose keys and values are sent to later stages.
  struct Keys {
    int64_t layer = 0;  // index in the whole model
    int64_t width = 0;  // width of this rank's heads
    int64_t first = 0;  // number of elements of a row that precede these keys and values
    // The rank's first layer that attends to these keys. -1: the rank only forwards them.
    int64_t user = -1;
  };

  // Returns the rows of the rank at `place`. The last stage sends only the residual and the
  // `handed` elements, to the first stage.
  static StageRows For(const DecoderSpec& spec, const RankPlace& place,
                       const HandedRows& handed = {});

  // These functions return the width of a row received from the previous stage, and of a row sent
  // to the next stage.
  int64_t received() const { return WidthOf(num_received); }
  int64_t handed_on(bool is_last_stage) const {
    return is_last_stage ? returned() : WidthOf(keys.size());
  }
  // Returns the width of a row that the last stage sends to the first stage.
  int64_t returned() const { return hidden + handed; }
  // Returns the maximum width of a row in a message.
  int64_t widest() const { return WidthOf(keys.size()); }
  // Returns the layer's entry in `keys`; null if its keys and values are not sent.
  const Keys* Find(int64_t layer) const;

  int64_t hidden = 0;
  int64_t handed = 0;
  // Index in the whole model of the first layer after the first stage.
  int64_t first_embedding_layer = 0;
  int64_t embedding_layers = 0;
  int64_t embedding_width = 0;  // elements per row and layer; 0: there are no embeddings
  // In the order of the layers; the first `num_received` entries are received from previous stages.
  std::vector<Keys> keys;
  size_t num_received = 0;

 private:
  int64_t WidthOf(size_t num_keys) const;
};

}  // namespace sluice
