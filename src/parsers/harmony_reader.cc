#include "parsers/harmony_reader.h"

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "base/ascii.h"
#include "parsers/tool_types.h"

namespace sluice {
namespace {

const std::array<std::string, 1> kHeaderEnds = {"<|message|>"};
// Each of these ends a message. The last one also begins the next message.
const std::array<std::string, 4> kMessageEnds = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};
// Under a grammar, a message may begin anywhere, so <|channel|> also ends the previous message.
const std::array<std::string, 5> kConstrainedEnds = {"<|end|>", "<|return|>", "<|call|>",
                                                     "<|start|>", "<|channel|>"};
const std::array<std::string, 2> kMessageBegins = {"<|channel|>", "<|start|>"};
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kFunctions = "functions.";

// The first word of `text`, which ends at white space or a mark.
std::string_view FirstWord(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && !IsAsciiBlank(text[size]) && !text.substr(size).starts_with("<|"))
    ++size;
  return text.substr(0, size);
}

// The word that follows `key` in a header; "" if there is none.
std::string_view WordAfter(std::string_view header, std::string_view key) {
  for (size_t at = header.find(key); at != std::string_view::npos; at = header.find(key, at + 1)) {
    if (at == 0 || IsAsciiBlank(header[at - 1]) || header[at - 1] == '>' || key.front() == '<')
      return FirstWord(header.substr(at + key.size()));
  }
  return "";
}

// The tool that a message is addressed to; "" if there is none, or if it is a built-in tool.
std::string_view ToolOf(std::string_view recipient) {
  if (recipient.starts_with(kFunctions)) return recipient.substr(kFunctions.size());
  const std::string_view owner = recipient.substr(0, recipient.find('.'));
  for (const std::string_view other : {"assistant", "python", "browser", "container"}) {
    if (owner == other) return "";
  }
  return recipient;
}

}  // namespace

void HarmonyReader::Emit(std::string_view text, ParserOutput& output) {
  if (text.empty()) return;
  const bool separate = !std::exchange(has_text_, true);
  switch (part_) {
    case Part::kContent:
      if (separate && std::exchange(has_content_, true)) output.BreakContent();
      output.Content(text);
      break;
    case Part::kThought:
      if (separate && std::exchange(has_thoughts_, true)) output.BreakReasoning();
      output.Reasoning(text);
      break;
    case Part::kCall: output.Arguments(text); break;
    case Part::kDropped: break;
  }
}

void HarmonyReader::Cut(TextInput& input, ParserOutput& /*output*/) {
  if (state_ == State::kMessage && part_ == Part::kCall) input.Clear();
}

void HarmonyReader::BeginMessage(ParserOutput& output) {
  const std::string_view header = header_;
  const std::string_view channel = WordAfter(header, kChannel);
  const std::string_view recipient = WordAfter(header, "to=");
  const std::string_view role = header.starts_with("to=") ? "" : FirstWord(header);
  const std::string_view tool = ToolOf(recipient);
  part_ = Part::kDropped;
  if (parts_.constrained && header.find("<|channel|>final") != std::string_view::npos) {
    part_ = Part::kContent;
    state_ = State::kForm;
  } else if (!role.empty() && role != "assistant") {
    // Drops the message, which is the output of a tool.
  } else if (!tool.empty()) {
    if (parts_.calls) {
      part_ = Part::kCall;
      output.BeginCall(std::string(tool));
    }
  } else if (channel == "analysis" || parts_.constrained) {
    if (parts_.thoughts) part_ = Part::kThought;
  } else if (recipient.empty() &&
             (channel.empty() || channel == "final" || channel == "commentary")) {
    part_ = Part::kContent;
  }
  header_.clear();
  has_text_ = false;
}

// Determines whether the answer begins with a message or, as under a constraint, with plain text.
bool HarmonyReader::ReadStart(TextInput& input, ParserOutput& output) {
  const std::optional<char> c = input.Next();
  if (!c) {
    if (input.ended()) Emit(std::exchange(header_, ""), output);
    return false;
  }
  header_ += *c;
  std::string_view begun = header_;
  while (!begun.empty() && IsAsciiBlank(begun.front())) begun.remove_prefix(1);
  bool may_begin = begun.empty() && header_.size() < kMaxHeldBytes;
  for (const std::string_view begin :
       {kChannel, kStart, std::string_view("<|message|>"), std::string_view("to="),
        std::string_view("assistant<|"), std::string_view("assistant to=")}) {
    may_begin |= begin.starts_with(begun);
    if (!begun.starts_with(begin)) continue;
    input.Unread(begin == kStart ? "" : begun);
    header_.clear();
    state_ = State::kHeader;
    return true;
  }
  if (may_begin) return true;
  state_ = parts_.constrained ? State::kForm : State::kPlain;
  Emit(std::exchange(header_, ""), output);
  return true;
}

bool HarmonyReader::ReadHeader(TextInput& input, ParserOutput& output) {
  const int found = input.PassUntil(kHeaderEnds, header_);
  if (header_.size() > kMaxHeldBytes) header_.resize(kMaxHeldBytes);
  if (found < 0) return false;
  state_ = State::kMessage;
  BeginMessage(output);
  return true;
}

bool HarmonyReader::ReadUntilMark(TextInput& input, ParserOutput& output) {
  std::string passed;
  if (state_ == State::kForm) {
    input.PassUntil({}, passed);
    Emit(passed, output);
    return false;
  }
  if (state_ == State::kBetween) {
    const int found = input.PassUntil(kMessageBegins, passed);
    if (found < 0) return false;
    if (found == 0) input.Unread(kChannel);
    state_ = State::kHeader;
    return true;
  }
  const std::span<const std::string> ends =
      parts_.constrained ? std::span<const std::string>(kConstrainedEnds) : kMessageEnds;
  const int found = input.PassUntil(ends, passed);
  Emit(passed, output);
  if (found < 0) return false;
  state_ = found >= 3 ? State::kHeader : State::kBetween;
  if (found == 4) input.Unread(kChannel);
  return true;
}

void HarmonyReader::Read(TextInput& input, ParserOutput& output) {
  for (;;) {
    const bool more = state_ == State::kStart    ? ReadStart(input, output)
                      : state_ == State::kHeader ? ReadHeader(input, output)
                                                 : ReadUntilMark(input, output);
    if (!more) return;
  }
}

std::unique_ptr<ToolReader> MakeHarmonyReader(ChannelParts parts) {
  return std::make_unique<HarmonyReader>(parts);
}

}  // namespace sluice
