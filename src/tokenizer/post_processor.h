// The `post_processor` of a tokenizer.json: the special tokens around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace sluice {

// TemplateProcessing (its `single` template), ByteLevel (which changes offsets only) and sequences
// of them. Thread safety: immutable.
class PostProcessor {
 public:
  // `value` may be null: nothing is added. Ids must be below `end_id`.
  static Result<PostProcessor> Parse(const json::Value* value, int32_t end_id);

  // Adds the special tokens around `ids`.
  void Apply(std::vector<int32_t>& ids) const;

 private:
  // One part of a template: the text, or ids of its own.
  struct Part {
    bool is_text = false;
    std::vector<int32_t> ids;
  };

  std::vector<std::vector<Part>> templates_;
};

}  // namespace sluice
