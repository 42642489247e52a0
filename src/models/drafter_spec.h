// A drafting head: a few layers that continue the hidden rows of another decoder, its target, and
// propose the tokens that may follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// Hidden rows that a decoder hands on, of every row of a step.
struct HandedRows {
  // The residual as these layers read it, before their norms: [hidden_size] each, one beside the
  // other.
  std::vector<int64_t> layers = {};
  bool is_normed = false;  // instead: the rows after the final norm, [hidden_size]

  bool any() const { return is_normed || !layers.empty(); }
  int64_t Width(int64_t hidden_size) const {
    return is_normed ? hidden_size : std::ssize(layers) * hidden_size;
  }
  bool operator==(const HandedRows&) const = default;
};

// Row i of the head is of token i + 1 of the text and of the target's hidden row i, at position i:
// its logits are those of token i + 2. To propose a further token it takes, in place of the
// target's, the hidden row that it made itself.
//
//   MTP      x = project([norm(embedding), norm(hidden)]), or the other way round; the layers; the
//            logits of norm(x). Source: DeepSeek V3's report, section 2.2; vLLM's deepseek_mtp.py,
//            glm4_moe_mtp.py, mimo_mtp.py, qwen3_next_mtp.py
//   EAGLE-3  x = hidden, of the target's rows project(hidden); the first layer's attention reads
//            [norm(embedding), norm(x)], and x is the residual. Source: vLLM's llama_eagle3.py
struct DrafterSpec {
  enum class Kind { kMtp, kEagle3 };
  Kind kind = Kind::kMtp;
  HandedRows takes = {};
  int64_t target_hidden_size = 0;
  // Modules, by their whole names: of the layers in turn, and around them.
  std::vector<std::string> layers = {};
  std::string projection = {};
  std::string token_norm = {}, hidden_norm = {};
  bool hidden_first = false;    // in the rows that kMtp projects
  bool norms_residual = false;  // of kEagle3: x becomes its norm before it is the residual
  bool keeps_norm = false;      // what it makes for itself is behind the final norm
  // "": the target's.
  std::string embedding = {}, head = {};
  // Logits: of as many tokens, which of the target's by `target_ids`; empty: the same.
  int64_t num_outputs = 0;
  std::vector<int32_t> target_ids = {};

  // The widest row of a product besides those of the layers.
  int64_t widest_input(int64_t hidden_size) const {
    return std::max(2 * hidden_size, target_width());
  }
  int64_t target_width() const { return takes.Width(target_hidden_size); }
};

}  // namespace sluice
