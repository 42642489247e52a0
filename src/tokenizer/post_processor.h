// The `post_processor` of a tokenizer.json: adds special tokens around one or two texts.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Two texts as one input. The type of a token is the index of its text, 0 or 1.
struct PairOfTexts {
  std::vector<int32_t> ids;
  std::vector<int8_t> types;  // [ids.size()]
};

// Supports TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (which only affects
// offsets) and sequences of them. Thread safety: immutable.
class PostProcessor {
 public:
  // `value` may be null; nothing is added then. All ids must be below `end_id`.
  static Result<PostProcessor> Parse(const json::Value* value, int32_t end_id);

  // Adds the special tokens around `ids`.
  void Apply(std::vector<int32_t>& ids) const;
  // Joins two texts and adds the special tokens around both.
  PairOfTexts ApplyPair(std::vector<int32_t> first, std::vector<int32_t> second) const;

 private:
  // A part of a template: one of the texts, or constant ids.
  struct Part {
    enum class Kind { kIds, kFirst, kSecond } kind = Kind::kIds;
    std::vector<int32_t> ids = {};
    int8_t type = 0;
  };
  using Template = std::vector<Part>;
  friend class PostProcessorReader;

  std::vector<Template> templates_;  // applied to a single text
  Template pair_;                    // applied to two texts
};

}  // namespace sluice
