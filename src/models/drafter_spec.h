// A drafting head: a few layers that read the hidden rows of another decoder, its target, and
// propose the next tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// The hidden rows that a decoder outputs for every row of a step.
struct HandedRows {
  // Layers at whose input the residual is output, before their norms: [hidden_size] for each layer,
  // concatenated.
  std::vector<int64_t> layers = {};
  // Whether, instead of `layers`, the rows after the final norm are output: [hidden_size].
  bool is_normed = false;

  bool any() const { return is_normed || !layers.empty(); }
  // Returns the number of parts of hidden_size numbers in a row.
  int64_t NumParts() const { return is_normed ? 1 : std::ssize(layers); }
  int64_t Width(int64_t hidden_size) const { return NumParts() * hidden_size; }
  bool operator==(const HandedRows&) const = default;
};

// Row i of the head is at position i and reads token i + 1 of the text and the target's hidden row
// i; its logits predict token i + 2. To propose a further token, the head reads its own hidden row
// instead of the target's.
//
//   MTP      x = project([norm(embedding), norm(hidden)]), or in the other order; the layers; the
//            logits of norm(x). Source: DeepSeek V3's report, section 2.2; vLLM's deepseek_mtp.py,
//            glm4_moe_mtp.py, mimo_mtp.py, qwen3_next_mtp.py
//   EAGLE-3  x = project(hidden) for the target's rows, hidden for its own; the first layer's
//            attention reads [norm(embedding), norm(x)], and x is the residual. Source: vLLM's
//            llama_eagle3.py
//   EAGLE-1  x = project([embedding, hidden]); the layers, of which the first has no norm before
//            attention; the logits of x. Source: vLLM's llama_eagle.py
//
// A DFlash drafter instead has two kinds of steps. Steps with the target's rows append keys and
// values: in each layer those of norm(project(hidden)), row i at position i. Other steps draft a
// block: `block_size` rows from position n on. These are the embeddings of the text's last token,
// at position n, and of mask tokens. The rows attend to the n rows before them and to each other,
// in both directions. Row i of the block predicts the token at position n + i. Source: the authors'
// dflash.py (z-lab/dflash), DFlashDraftModel.
struct DrafterSpec {
  enum class Kind { kMtp, kEagle3, kEagle1, kDflash };
  Kind kind = Kind::kMtp;
  HandedRows takes = {};
  int64_t target_hidden_size = 0;
  // Full names of modules. Some of them belong to a layer, others are outside the layers.
  std::vector<std::string> layers = {};
  std::string projection = {};
  bool projection_bias = false;
  std::string token_norm = {}, hidden_norm = {};  // names of both norms; "": none
  bool hidden_first = false;    // kMtp: the projection reads [norm(hidden), norm(embedding)]
  bool norms_residual = false;  // kEagle3: norm(x), not x, is the residual
  int64_t block_size = 0;       // only for kDflash: number of rows of a block
  int32_t mask_token = 0;       // only for kDflash: token id of masked rows
  // Whether the row that the head feeds back to itself is taken after the final norm.
  bool keeps_norm = false;
  // Names of the modules; "": the target's module is used.
  std::string embedding = {}, head = {};
  // Number of logits, and for each logit the target's token id. If `target_ids` is empty, the ids
  // are the same.
  int64_t num_outputs = 0;
  std::vector<int32_t> target_ids = {};

  bool drafts_blocks() const { return kind == Kind::kDflash; }
  int64_t target_width() const { return takes.Width(target_hidden_size); }
};

}  // namespace sluice
