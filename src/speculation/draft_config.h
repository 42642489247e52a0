// Settings of a draft model that proposes tokens: a smaller model, or a head on the model's own
// hidden states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// The names of members are those of vLLM's --speculative-config, except `adaptive`.
struct DraftConfig {
  enum class Kind {
    kModel,   // a separate decoder
    kEagle3,  // an EAGLE-3 or EAGLE-1 head
    kDflash,  // a DFlash drafter, which drafts a block of tokens at once
    kMtp,     // MTP layers of the model's own checkpoint; needs no folder
  };
  Kind kind = Kind::kModel;
  std::filesystem::path folder;  // folder of its checkpoint; "": none
  int num_tokens = 0;            // maximum draft tokens per sequence and step
  // Maximum length of a sequence for which it proposes tokens; nullopt: its checkpoint's limit.
  std::optional<int64_t> max_model_len;
  // Format to which its weights are quantized while loading; "": not quantized.
  std::string quantization;
  // Whether to propose fewer tokens, or none, if drafting takes longer than it saves.
  bool adaptive = true;

  bool is_given() const { return is_mtp() || !folder.empty(); }
  bool is_mtp() const { return kind == Kind::kMtp; }
  bool is_head() const { return kind != Kind::kModel; }
  bool operator==(const DraftConfig&) const = default;
};

}  // namespace sluice
