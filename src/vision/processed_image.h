// An image as input of a model's tower, and the tokens that represent it in a prompt.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sluice {

// Immutable after creation; shared by threads and requests as shared_ptr<const ProcessedImage>.
struct ProcessedImage {
  // transformers' `pixel_values` of this image alone, F32, row-major, without padding to others:
  //
  //   Llama 4            [tiles, 3, height, width]; of several tiles the last is the whole image
  //   Gemma 3            [1, 3, height, width]; a crop of pan and scan is an image of its own
  //   Gemma 4            [patches, patch * patch * 3], a patch as row, column, channel; row by row
  //   Qwen, GLM, dots    [patches, 3 * temporal * patch * patch], a patch as channel, time, row,
  //                      column; in blocks of merge x merge: block row, block column, row, column
  //   PaddleOCR-VL       [patches, 3 * temporal, patch, patch], row by row
  //   Pixtral, Mistral   [3, height, width], both multiples of patch * merge
  std::vector<int64_t> shape;
  std::vector<float> values;

  // Patches of the image before merging: time, height, width. Llama 4: patches of one tile. Gemma
  // 3: zeros, since its processor does not know the patch size.
  std::array<int, 3> grid{0, 0, 0};
  // Llama 4: rows and columns of tiles, excluding the whole image; {1, 1} if there is one tile.
  // Others: {1, 1}.
  std::array<int, 2> tiles{1, 1};

  // The prompt's tokens for this image: only special tokens, from the first marker of the image to
  // the last. The prompt contains exactly these ids, contiguous, at the recorded position.
  std::vector<int32_t> tokens;
  // As long as `tokens`: 1 if a row of the tower's output replaces the token's embedding, in order.
  std::vector<uint8_t> is_embedding;
  int num_embeddings = 0;  // number of ones in is_embedding: rows of the tower's output

  // XXH3-128 of values, shape, grid, tiles, so equal for equal tower inputs; high word, low word.
  std::array<uint64_t, 2> hash{0, 0};

  // Bytes that this image occupies.
  int64_t bytes() const {
    return static_cast<int64_t>(values.capacity() * sizeof(float) +
                                tokens.capacity() * sizeof(int32_t) + is_embedding.capacity() +
                                sizeof(*this));
  }
};

}  // namespace sluice
