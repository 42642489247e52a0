// Phi 4 mini's calls: functools[{"name": ..., "arguments": ...}].
#pragma once

#include <string>

#include "parsers/tool_reader.h"

namespace sluice {

// As in vLLM the list ends at the first "]", so that arguments cannot hold lists, and a list that
// is no JSON is dropped; so is text after a list. The calls of a list come together, once it is
// complete.
class PhiReader final : public ToolReader {
 public:
  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return !in_list_; }

 private:
  bool in_list_ = false;
  bool had_list_ = false;
  std::string list_;
};

}  // namespace sluice
