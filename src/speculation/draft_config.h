// A smaller model, or a head of the model's own hidden rows, that proposes tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// The names are those of vLLM's --speculative-config, but for `adaptive`.
struct DraftConfig {
  enum class Kind {
    kModel,   // a decoder of its own
    kEagle3,  // an EAGLE-3 head
    kMtp,     // the layers of the model's own checkpoint; it needs no folder
  };
  Kind kind = Kind::kModel;
  std::filesystem::path folder;  // of its checkpoint; "": there is none
  int num_tokens = 0;            // the most that are proposed of one sequence in a step
  // The longest sequence that it proposes for; none: as its checkpoint says.
  std::optional<int64_t> max_model_len;
  std::string quantization;  // the format that its weights take while loading; "": their own
  // Whether it is asked for fewer tokens, or none, where it takes longer than it saves.
  bool adaptive = true;

  bool is_given() const { return is_mtp() || !folder.empty(); }
  bool is_mtp() const { return kind == Kind::kMtp; }
  bool is_head() const { return kind != Kind::kModel; }
  bool operator==(const DraftConfig&) const = default;
};

}  // namespace sluice
