// Reads the harmony format, where an answer is a sequence of messages:
// <|start|>assistant<|channel|>CHANNEL to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|>. The
// prompt ends with the first "<|start|>assistant". Reasoning is in the channel `analysis`; calls
// have the recipient functions.NAME.
#pragma once

#include <string>
#include <string_view>

#include "parsers/parser_table.h"
#include "parsers/tool_reader.h"

namespace sluice {

// Reads the whole answer, including reasoning. Drops messages to other recipients and in unknown
// channels. Separates messages of the same kind by breaks.
class HarmonyReader final : public ToolReader {
 public:
  explicit HarmonyReader(ChannelParts parts) : parts_(parts) {}

  void Read(TextInput& input, ParserOutput& output) override;
  bool InText() const override {
    return state_ == State::kPlain || state_ == State::kForm ||
           (state_ == State::kMessage && part_ == Part::kContent);
  }
  void Cut(TextInput& input, ParserOutput& output) override;

 private:
  // kForm: inside text that a grammar constrains, which lasts until the end of the answer.
  enum class State { kStart, kPlain, kForm, kHeader, kMessage, kBetween };
  enum class Part { kContent, kThought, kCall, kDropped };

  bool ReadStart(TextInput& input, ParserOutput& output);
  bool ReadHeader(TextInput& input, ParserOutput& output);
  bool ReadUntilMark(TextInput& input, ParserOutput& output);
  void BeginMessage(ParserOutput& output);
  void Emit(std::string_view text, ParserOutput& output);

  const ChannelParts parts_;
  State state_ = State::kStart;
  Part part_ = Part::kContent;
  std::string header_;
  bool has_text_ = false;  // whether the message has text
  bool has_content_ = false;
  bool has_thoughts_ = false;
};

std::unique_ptr<ToolReader> MakeHarmonyReader(ChannelParts parts);

}  // namespace sluice
