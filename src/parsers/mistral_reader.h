// Reads Mistral's calls: [TOOL_CALLS][{"name": ..., "arguments": ...}] with older tokenizers, and
// [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...} with v11 and later. The first byte after the marker
// determines the format.
#pragma once

#include <string>

#include "parsers/json_reader.h"
#include "parsers/json_value_scan.h"
#include "parsers/tool_reader.h"

namespace sluice {

class MistralReader final : public ToolReader {
 public:
  MistralReader();

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override { return state_ == State::kText; }
  void Cut(TextInput& input, ParserOutput& output) override;

 private:
  enum class State { kText, kOpen, kName, kId, kBeforeArguments, kArguments, kJson };

  void BeginCall(ParserOutput& output);

  State state_ = State::kText;
  JsonReader json_;
  std::string name_;
  std::string id_;
  JsonValueScan scan_;
};

}  // namespace sluice
