// A smaller model that proposes tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// The names are those of vLLM's --speculative-config with the method draft_model, but for
// `adaptive`.
struct DraftConfig {
  std::filesystem::path folder;  // of its checkpoint; "": there is none
  int num_tokens = 0;            // the most that are proposed of one sequence in a step
  // The longest sequence that it proposes for; none: as its checkpoint says.
  std::optional<int64_t> max_model_len;
  std::string quantization;  // the format that its weights take while loading; "": their own
  // Whether it is asked for fewer tokens, or none, where it takes longer than it saves.
  bool adaptive = true;

  bool is_given() const { return !folder.empty(); }
  bool operator==(const DraftConfig&) const = default;
};

}  // namespace sluice
