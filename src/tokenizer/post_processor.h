// The `post_processor` of a tokenizer.json: the special tokens around a text, or around two.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// Two texts as one input, and the number of the text that each token counts to: 0 or 1.
struct PairOfTexts {
  std::vector<int32_t> ids;
  std::vector<int8_t> types;  // [ids.size()]
};

// TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (which changes offsets only) and
// sequences of them. Thread safety: immutable.
class PostProcessor {
 public:
  // `value` may be null: nothing is added. Ids must be below `end_id`.
  static Result<PostProcessor> Parse(const json::Value* value, int32_t end_id);

  // Adds the special tokens around `ids`.
  void Apply(std::vector<int32_t>& ids) const;
  // The two texts with the special tokens around both.
  PairOfTexts ApplyPair(std::vector<int32_t> first, std::vector<int32_t> second) const;

 private:
  // One part of a template: a text, or ids of its own.
  struct Part {
    enum class Kind { kIds, kFirst, kSecond } kind = Kind::kIds;
    std::vector<int32_t> ids = {};
    int8_t type = 0;
  };
  using Template = std::vector<Part>;
  friend class PostProcessorReader;

  std::vector<Template> templates_;  // of one text
  Template pair_;                    // of two
};

}  // namespace sluice
