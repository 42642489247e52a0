#include "parsers/parse_tool.h"

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "parsers/answer_reader.h"

namespace sluice {
namespace {

tl::unexpected<Error> BadLine(std::string_view expected) {
  return Fail(ErrorCode::kInvalidArgument, "a line must have " + std::string(expected));
}

json::Value TextOrNull(std::string text) {
  return text.empty() ? json::Value() : json::Value(std::move(text));
}

// Combines all events of a text into one result.
json::Value Whole(const std::vector<ParserEvent>& events) {
  std::string content;
  std::string reasoning;
  json::Value::Array calls;
  for (const ParserEvent& event : events) {
    switch (event.kind) {
      case ParserEvent::Kind::kContent: content += event.text; break;
      case ParserEvent::Kind::kReasoning: reasoning += event.text; break;
      case ParserEvent::Kind::kCallBegin:
        calls.push_back(json::Value::Object{{"name", event.text}, {"arguments", ""}});
        break;
      case ParserEvent::Kind::kCallArguments: {
        json::Value& call = calls.back();
        call.Set("arguments", call.Find("arguments")->as_string() + event.text);
        break;
      }
    }
  }
  return json::Value::Object{{"content", TextOrNull(std::move(content))},
                             {"reasoning", TextOrNull(std::move(reasoning))},
                             {"tool_calls", std::move(calls)}};
}

// Combines the events of one chunk into a delta.
json::Value Delta(const std::vector<ParserEvent>& events) {
  std::string content;
  std::string reasoning;
  json::Value::Array calls;
  for (const ParserEvent& event : events) {
    switch (event.kind) {
      case ParserEvent::Kind::kContent: content += event.text; break;
      case ParserEvent::Kind::kReasoning: reasoning += event.text; break;
      case ParserEvent::Kind::kCallBegin:
        calls.push_back(json::Value::Object{{"index", event.call}, {"name", event.text}});
        break;
      case ParserEvent::Kind::kCallArguments:
        calls.push_back(json::Value::Object{{"index", event.call}, {"arguments", event.text}});
        break;
    }
  }
  json::Value::Object delta;
  if (!content.empty()) delta.emplace_back("content", std::move(content));
  if (!reasoning.empty()) delta.emplace_back("reasoning", std::move(reasoning));
  if (!calls.empty()) delta.emplace_back("tool_calls", std::move(calls));
  return delta.empty() ? json::Value() : json::Value(std::move(delta));
}

std::vector<ParserEvent> ReadPiece(AnswerReader& reader, std::string_view text, bool last,
                                   bool cut) {
  std::vector<ParserEvent> events = reader.Push(text);
  if (last) {
    for (ParserEvent& event : reader.Finish(cut)) events.push_back(std::move(event));
  }
  return events;
}

Result<json::Value> ParseLine(const ParseToolOptions& options, const std::string& line) {
  ASSIGN_OR_RETURN(const json::Value row, json::Parse(line));
  const json::Value* text = row.Find("text");
  if (text == nullptr || !text->is_string()) return BadLine("a string \"text\"");
  const json::Value* chunks = row.Find("chunks");
  if (chunks == nullptr || !chunks->is_array()) {
    return BadLine("an array \"chunks\"");
  }
  AnswerReaderOptions reader_options{.tools = options.tools,
                                     .reasoning = options.reasoning,
                                     .types = options.types,
                                     .prompt = {},
                                     .thinking = {}};
  if (const json::Value* prompt = row.Find("prompt"); prompt != nullptr && prompt->is_string()) {
    reader_options.prompt = prompt->as_string();
  }
  if (const json::Value* kwargs = row.Find("chat_template_kwargs")) {
    reader_options.thinking = ThinkingSwitch(*kwargs);
  }
  if (const json::Value* tools = row.Find("tools"); tools != nullptr && tools->is_array()) {
    reader_options.types = std::make_shared<const ToolTypes>(
        *tools, options.tools != nullptr && options.tools->reads_schemas);
  }
  const json::Value* ends = row.Find("ends");
  const bool cut = ends != nullptr && *ends == json::Value("length");
  AnswerReader whole_reader(reader_options);
  json::Value answer = Whole(ReadPiece(whole_reader, text->as_string(), /*last=*/true, cut));
  AnswerReader stream_reader(reader_options);
  json::Value::Array deltas;
  for (const json::Value& chunk : chunks->as_array()) {
    if (!chunk.is_string()) return BadLine("strings in \"chunks\"");
    const bool last = deltas.size() + 1 == chunks->as_array().size();
    deltas.push_back(Delta(ReadPiece(stream_reader, chunk.as_string(), last, cut)));
  }
  answer.Set("deltas", std::move(deltas));
  return answer;
}

}  // namespace

Status RunParse(const ParseToolOptions& options, std::istream& in, std::ostream& out) {
  std::string line;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<json::Value> answer = ParseLine(options, line);
    if (!answer) {
      answer =
          json::Value::Object{{"error", json::Value::Object{{"message", answer.error().message}}}};
    }
    out << json::Write(*answer) << "\n" << std::flush;
    if (!out) return Fail(ErrorCode::kInvalidArgument, "the output cannot be written");
  }
  return {};
}

}  // namespace sluice
