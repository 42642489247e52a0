#include "server/api/writers/logprob_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/append_format.h"
#include "base/json.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxContext = 4;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// JSON has no infinity.
void AppendLogprob(std::string& out, float logprob) {
  json::AppendDouble(out, logprob > -9999.0f ? static_cast<double>(logprob) : -9999.0);
}

void Advance(LogprobPosition& position, int32_t token) {
  position.context.push_back(token);
  if (position.context.size() > 2 * kMaxContext)
    position.context.erase(position.context.begin(), position.context.end() - kMaxContext);
}

}  // namespace

std::string TokenText(const Tokenizer& tokenizer, int32_t token, std::span<const int32_t> context) {
  std::string alone = tokenizer.Decode(std::span(&token, 1), false);
  if (!alone.ends_with(kReplacement)) return alone;
  for (size_t count = 1; count <= std::min(kMaxContext, context.size()); ++count) {
    std::vector<int32_t> ids(context.end() - static_cast<std::ptrdiff_t>(count), context.end());
    ids.push_back(token);
    const std::string whole = tokenizer.Decode(ids, false);
    if (whole.ends_with(kReplacement)) continue;
    // Tokens before this one that are parts of the same character had no text of their own.
    size_t clean = count;
    while (clean > 0 &&
           tokenizer.Decode(std::span(&ids[clean - 1], 1), false).ends_with(kReplacement))
      --clean;
    const std::string prefix = tokenizer.Decode(std::span(ids).first(clean), false);
    return whole.starts_with(prefix) ? whole.substr(prefix.size()) : whole;
  }
  return "";
}

std::vector<std::pair<int32_t, float>> ChosenAndTop(const TokenLogprobs& logprobs, size_t count) {
  std::vector<std::pair<int32_t, float>> result;
  result.reserve(std::min(count, logprobs.top.size() + 1));
  if (count > 0) result.emplace_back(logprobs.token, logprobs.logprob);
  for (const auto& entry : logprobs.top) {
    if (result.size() >= count) break;
    if (entry.first != logprobs.token) result.push_back(entry);
  }
  return result;
}

void LogprobColumns::Add(std::span<const TokenLogprobs> logprobs, LogprobPosition& position) {
  for (const TokenLogprobs& token : logprobs) {
    AddToken(token.token, position.context, &token, position.offset);
    Advance(position, token.token);
  }
}

void LogprobColumns::AddPrompt(std::span<const int32_t> prompt, const PromptResult& result,
                               LogprobPosition& position) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool known = i < result.logprobs.size() && result.logprobs[i];
    AddToken(prompt[i], prompt.first(i), known ? &*result.logprobs[i] : nullptr, position.offset);
  }
}

void LogprobColumns::AddToken(int32_t token, std::span<const int32_t> context,
                              const TokenLogprobs* logprobs, int64_t& offset) {
  const std::string text = Text(token, context);
  if (!offsets_.empty()) {
    for (std::string* column : {&offsets_, &logprobs_, &tokens_, &tops_}) column->push_back(',');
  }
  offsets_ += std::to_string(offset);
  offset += static_cast<int64_t>(CountCharacters(text));
  json::AppendString(tokens_, text);
  if (logprobs == nullptr) {
    logprobs_ += "null";
    tops_ += "null";
    return;
  }
  AppendLogprob(logprobs_, logprobs->logprob);
  // Texts may coincide: the key stays where it was, the value is the last one.
  std::vector<std::pair<std::string, float>> entries;
  std::unordered_map<std::string, size_t> places;
  const size_t count = static_cast<size_t>(style_.count) + 1;
  for (const auto& [id, logprob] : ChosenAndTop(*logprobs, count)) {
    std::string key = id == token ? text : Text(id, context);
    const auto [place, added] = places.emplace(key, entries.size());
    if (added) {
      entries.emplace_back(std::move(key), logprob);
    } else {
      entries[place->second].second = logprob;
    }
  }
  tops_.push_back('{');
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) tops_.push_back(',');
    json::AppendString(tops_, entries[i].first);
    tops_.push_back(':');
    AppendLogprob(tops_, entries[i].second);
  }
  tops_.push_back('}');
}

void LogprobColumns::AppendTo(std::string& out) const {
  AppendFormat(out,
               R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})",
               offsets_, logprobs_, tokens_, tops_);
}

std::string LogprobColumns::Text(int32_t token, std::span<const int32_t> context) const {
  return style_.tokens_as_ids ? fmt::format("token_id:{}", token)
                              : TokenText(style_.tokenizer, token, context);
}

void AppendLogprobElements(std::string& out, const LogprobStyle& style,
                           std::span<const TokenLogprobs> logprobs, LogprobPosition& position) {
  const auto append = [&](int32_t token, float logprob, bool is_top) {
    const std::string text = TokenText(style.tokenizer, token, position.context);
    const std::string shown = style.tokens_as_ids ? fmt::format("token_id:{}", token) : text;
    out += R"({"token":)";
    json::AppendString(out, shown);
    out += R"(,"logprob":)";
    AppendLogprob(out, logprob);
    if (!style.shows_bytes) return;
    const std::string& bytes = is_top ? shown : text;
    const auto* first = reinterpret_cast<const unsigned char*>(bytes.data());
    AppendFormat(out, R"(,"bytes":[{}])", fmt::join(first, first + bytes.size(), ","));
  };
  for (const TokenLogprobs& token : logprobs) {
    if (!out.empty()) out.push_back(',');
    append(token.token, token.logprob, /*is_top=*/false);
    out += R"(,"top_logprobs":[)";
    bool first = true;
    for (const auto& [id, logprob] : ChosenAndTop(token, static_cast<size_t>(style.count))) {
      if (!std::exchange(first, false)) out.push_back(',');
      append(id, logprob, /*is_top=*/true);
      out.push_back('}');
    }
    out += "]}";
    Advance(position, token.token);
  }
}

void AppendLogprobList(std::string& out, const LogprobStyle& style,
                       std::span<const TokenLogprobs> logprobs, LogprobPosition& position) {
  std::string elements;
  AppendLogprobElements(elements, style, logprobs, position);
  out.append(R"({"content":[)").append(elements).append("]}");
}

void AppendPromptLogprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const PromptResult& result,
                          size_t count) {
  out.push_back('[');
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    if (i > 0) out.push_back(',');
    if (!result.logprobs[i]) {
      out += "null";
      continue;
    }
    const TokenLogprobs& logprobs = *result.logprobs[i];
    const std::span<const int32_t> context = prompt.first(std::min(i, prompt.size()));
    out.push_back('{');
    bool first = true;
    const auto append = [&](int32_t token, float logprob, int64_t rank) {
      if (!std::exchange(first, false)) out.push_back(',');
      out += fmt::format(R"("{}":{{"logprob":)", token);
      AppendLogprob(out, logprob);
      out += fmt::format(R"(,"rank":{},"decoded_token":)", rank);
      json::AppendString(out, TokenText(tokenizer, token, context));
      out.push_back('}');
    };
    append(logprobs.token, logprobs.logprob, logprobs.rank);
    for (size_t rank = 0; rank < logprobs.top.size() && rank < count; ++rank) {
      const auto& [token, logprob] = logprobs.top[rank];
      if (token != logprobs.token) append(token, logprob, static_cast<int64_t>(rank) + 1);
    }
    out.push_back('}');
  }
  out.push_back(']');
}

size_t PromptLogprobBytes(const PromptResult& result) {
  constexpr size_t kEntryBytes = 64;
  size_t bytes = 0;
  for (const auto& logprobs : result.logprobs)
    bytes += kEntryBytes * (1 + (logprobs ? logprobs->top.size() : 0));
  return bytes;
}

}  // namespace sluice
