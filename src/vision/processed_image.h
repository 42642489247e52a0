// A preprocessed image in the form that a tower reads, and the tokens that represent it in a
// prompt.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sluice {

// Immutable once created; threads and requests share it as shared_ptr<const ProcessedImage>.
struct ProcessedImage {
  // transformers' `pixel_values` of this image, F32, row-major, without padding to the size of
  // other images:
  //
  //   Llama 4            [tiles, 3, height, width]; if several, the last is the whole image
  //   InternVL           as Llama 4
  //   LLaVA-NeXT         as Llama 4, but the whole image is first
  //   CLIP, SigLIP, Idefics 3  [1, 3, height, width]; a tile of Idefics 3 is a separate image
  //   LFM2-VL            as Gemma 4; a tile is a separate image
  //   Gemma 3            [1, 3, height, width]; a crop of pan and scan is a separate image
  //   Gemma 4            [patches, patch * patch * 3], a patch as row, column, channel; row by row
  //   Qwen, GLM, dots    [patches, 3 * temporal * patch * patch], a patch as channel, time, row,
  //                      column; in blocks of merge x merge: block row, block column, row, column
  //   PaddleOCR-VL       [patches, 3 * temporal, patch, patch], row by row
  //   Pixtral, Mistral   [3, height, width], both multiples of patch * merge
  std::vector<int64_t> shape;
  std::vector<float> values;

  // Size in patches before merging: time, height, width. Llama 4: the size of one tile. Gemma 3:
  // zeros, because its processor does not know the size of a patch.
  std::array<int, 3> grid{0, 0, 0};
  // Llama 4, InternVL, LLaVA-NeXT: rows and columns of tiles, without the whole image; {1, 1} if
  // there is one tile. Others: {1, 1}.
  std::array<int, 2> tiles{1, 1};

  // LLaVA-NeXT: the area of the canvas that shows the image, without the padding, in patches: first
  // row, first column, number of rows, number of columns. The canvas consists of all tiles in
  // `values` except the first, which is the whole image. Others: zeros.
  std::array<int, 4> kept{0, 0, 0, 0};

  // The image's tokens in the prompt: special tokens only, from the image's first marker to its
  // last. The prompt contains exactly these ids, contiguous, at the position recorded for the
  // image.
  std::vector<int32_t> tokens;
  // One entry per token: 1 if a row of the tower's output replaces the token's embedding, in this
  // order.
  std::vector<uint8_t> is_embedding;
  int num_embeddings = 0;  // number of rows that the tower computes: ones in is_embedding

  // XXH3-128 of values, shape, grid, tiles and kept, so that equal inputs of a tower have equal
  // hashes; high word first.
  std::array<uint64_t, 2> hash{0, 0};

  // Returns the bytes that this image allocates.
  int64_t bytes() const {
    return static_cast<int64_t>(values.capacity() * sizeof(float) +
                                tokens.capacity() * sizeof(int32_t) + is_embedding.capacity() +
                                sizeof(*this));
  }
};

}  // namespace sluice
