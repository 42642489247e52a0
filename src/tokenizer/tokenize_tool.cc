#include "tokenizer/tokenize_tool.h"

#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_ascii.h"

namespace sluice {
namespace {

Result<bool> Flag(const json::Value& request, std::string_view name) {
  const json::Value* value = request.Find(name);
  if (value == nullptr || value->is_null()) return true;
  if (!value->is_bool())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' must be true or false", name));
  return value->as_bool();
}

Result<std::string> EncodeLine(const Tokenizer& tokenizer, const json::Value& request) {
  const json::Value* text = request.Find("text");
  if (text == nullptr || !text->is_string())
    return Fail(ErrorCode::kInvalidArgument, "'text' must be a string");
  ASSIGN_OR_RETURN(const bool add_special_tokens, Flag(request, "add_special_tokens"));
  std::string out = "{\"ids\":[";
  const char* separator = "";
  for (const int32_t id : tokenizer.Encode(text->as_string(), add_special_tokens)) {
    out.append(separator).append(std::to_string(id));
    separator = ",";
  }
  return out + "]}";
}

Result<std::string> DecodeLine(const Tokenizer& tokenizer, const json::Value& request) {
  const json::Value* ids = request.Find("ids");
  if (ids == nullptr || !ids->is_array())
    return Fail(ErrorCode::kInvalidArgument, "'ids' must be an array of token ids");
  std::vector<int32_t> tokens;
  tokens.reserve(ids->as_array().size());
  for (const json::Value& id : ids->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > INT32_MAX) {
      return Fail(ErrorCode::kInvalidArgument, "'ids' must be whole numbers of at least 0");
    }
    tokens.push_back(static_cast<int32_t>(id.as_integer()));
  }
  ASSIGN_OR_RETURN(const bool skip_special_tokens, Flag(request, "skip_special_tokens"));
  std::string out = "{\"text\":";
  json::AppendAsciiString(out, tokenizer.Decode(tokens, skip_special_tokens));
  return out + "}";
}

}  // namespace

Status RunTokenize(const Tokenizer& tokenizer, bool decode, std::istream& in, std::ostream& out) {
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto answer = [&]() -> Result<std::string> {
      const auto request = json::Parse(line);
      if (!request || !request->is_object()) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("expected a JSON object such as {}, found {}",
                                decode ? R"({"ids": [1, 2]})" : R"({"text": "Hello"})",
                                line.substr(0, 100)));
      }
      return decode ? DecodeLine(tokenizer, *request) : EncodeLine(tokenizer, *request);
    }();
    if (!answer)
      return tl::unexpected<Error>(std::move(answer).error().In(fmt::format("line {}", number)));
    out << *answer << '\n';
  }
  out.flush();
  return {};
}

}  // namespace sluice
