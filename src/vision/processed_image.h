// An image as a tower of a model reads it, and the tokens that stand for it in a prompt.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sluice {

// Immutable after it was made; threads and requests share it as shared_ptr<const ProcessedImage>.
struct ProcessedImage {
  // transformers' `pixel_values` of this image alone, F32, row-major, without padding to others:
  //
  //   Llama 4            [tiles, 3, height, width]; of several tiles the last is the whole image
  //   InternVL           likewise
  //   LLaVA-NeXT         likewise, the whole image first
  //   CLIP, SigLIP, Idefics 3  [1, 3, height, width]; a tile of Idefics 3 is an image of its own
  //   LFM2-VL            as Gemma 4; a tile is an image of its own
  //   Gemma 3            [1, 3, height, width]; a crop of pan and scan is an image of its own
  //   Gemma 4            [patches, patch * patch * 3], a patch as row, column, channel; row by row
  //   Qwen, GLM, dots    [patches, 3 * temporal * patch * patch], a patch as channel, time, row,
  //                      column; in blocks of merge x merge: block row, block column, row, column
  //   PaddleOCR-VL       [patches, 3 * temporal, patch, patch], row by row
  //   Pixtral, Mistral   [3, height, width], both multiples of patch * merge
  std::vector<int64_t> shape;
  std::vector<float> values;

  // Patches of the image before merging: time, height, width. Llama 4: those of one tile. Gemma 3:
  // zeros, since its processor does not know the size of a patch.
  std::array<int, 3> grid{0, 0, 0};
  // Llama 4, InternVL, LLaVA-NeXT: rows and columns of tiles, without the whole image; {1, 1} if
  // there is one tile.
  // Others: {1, 1}.
  std::array<int, 2> tiles{1, 1};

  // LLaVA-NeXT: what of the canvas of tiles has rows: the first row and column of its patches, and
  // how many rows and columns. The first unit of `shape`, which is no tile, comes before. Others:
  // zeros.
  std::array<int, 4> kept{0, 0, 0, 0};

  // What stands in the prompt: special tokens only, from the first marker of the image to the last.
  // The prompt that goes with this image holds exactly these ids, contiguous, at the position that
  // is recorded for it.
  std::vector<int32_t> tokens;
  // As long as `tokens`: 1 where a row of the tower's output replaces the embedding of the token,
  // in that order.
  std::vector<uint8_t> is_embedding;
  int num_embeddings = 0;  // ones in is_embedding: the rows that the tower yields

  // XXH3-128 of values, shape, grid, tiles, kept: equal for equal inputs of a tower; high word, low
  // word.
  std::array<uint64_t, 2> hash{0, 0};

  // Bytes that this image keeps allocated.
  int64_t bytes() const {
    return static_cast<int64_t>(values.capacity() * sizeof(float) +
                                tokens.capacity() * sizeof(int32_t) + is_embedding.capacity() +
                                sizeof(*this));
  }
};

}  // namespace sluice
