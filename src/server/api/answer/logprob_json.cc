#include "server/api/answer/logprob_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/append_format.h"
#include "base/json.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

// JSON has no infinity, so -9999 is the smallest value.
void AppendLogprob(std::string& out, float logprob) {
  json::AppendDouble(out, logprob > -9999.0f ? static_cast<double>(logprob) : -9999.0);
}

}  // namespace

PendingTokens::PendingTokens(const Tokenizer& tokenizer, std::span<const int32_t> prompt)
    : detokenizer_(std::in_place, tokenizer, /*skip_special_tokens=*/false, prompt) {}

std::string PendingTokens::Push(const Tokenizer& tokenizer, int32_t token) {
  if (!detokenizer_) detokenizer_.emplace(tokenizer, /*skip_special_tokens=*/false);
  return detokenizer_->Push(token);
}

std::string PendingTokens::TextOf(const Tokenizer& tokenizer, int32_t token) const {
  PendingTokens copy = *this;
  return copy.Push(tokenizer, token);
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

std::vector<int64_t> PromptOffsets(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                                   std::string_view shown) {
  AnswerDetokenizer detokenizer(tokenizer, /*skip_special_tokens=*/false);
  std::vector<int64_t> offsets;
  offsets.reserve(prompt.size());
  std::string_view rest = shown;
  int64_t offset = 0;
  for (const int32_t token : prompt) {
    offsets.push_back(offset);
    const std::string piece = detokenizer.Push(token);
    std::string_view text = piece;
    // A tokenizer may put a blank before the first word.
    if (!rest.starts_with(text) && text.starts_with(' ')) text.remove_prefix(1);
    if (!rest.starts_with(text) && tokenizer.IsSpecial(token)) continue;
    // Normalization may have changed the text; assumes that it kept the number of characters.
    const std::string_view taken = TrimToCharacters(rest, CountCharacters(text));
    offset += static_cast<int64_t>(CountCharacters(taken));
    rest.remove_prefix(taken.size());
  }
  return offsets;
}

void LogprobColumns::Add(const TokenLogprobs& logprobs, int64_t offset, PendingTokens& pending) {
  AddToken(logprobs.token, offset, &logprobs, pending);
}

void LogprobColumns::AddPrompt(std::span<const int32_t> prompt, std::span<const int64_t> offsets,
                               const PromptResult& result, PendingTokens& pending) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool known = i < result.logprobs.size() && result.logprobs[i];
    AddToken(prompt[i], offsets[i], known ? &*result.logprobs[i] : nullptr, pending);
  }
}

void LogprobColumns::AddToken(int32_t token, int64_t offset, const TokenLogprobs* logprobs,
                              PendingTokens& pending) {
  const PendingTokens before = pending;
  const std::string text = Shown(token, pending.Push(style_.tokenizer, token));
  if (!offsets_.empty()) {
    for (std::string* column : {&offsets_, &logprobs_, &tokens_, &tops_}) column->push_back(',');
  }
  offsets_ += std::to_string(offset);
  json::AppendString(tokens_, text);
  if (logprobs == nullptr) {
    logprobs_ += "null";
    tops_ += "null";
    return;
  }
  AppendLogprob(logprobs_, logprobs->logprob);
  // Two tokens may have the same text. The list then has one entry, at the first position and with
  // the last value.
  std::vector<std::pair<std::string, float>> entries;
  std::unordered_map<std::string, size_t> places;
  const size_t count = static_cast<size_t>(style_.count) + 1;
  for (const auto& [id, logprob] : ChosenAndTop(*logprobs, count)) {
    std::string key = id == token ? text : Shown(id, before.TextOf(style_.tokenizer, id));
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

std::string LogprobColumns::Shown(int32_t token, std::string text) const {
  return style_.tokens_as_ids ? fmt::format("token_id:{}", token) : std::move(text);
}

void AppendLogprobElements(std::string& out, const LogprobStyle& style,
                           std::span<const TokenLogprobs> logprobs, PendingTokens& pending) {
  const auto append = [&](int32_t token, const std::string& text, float logprob, bool is_top) {
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
    const PendingTokens before = pending;
    const std::string text = pending.Push(style.tokenizer, token.token);
    append(token.token, text, token.logprob, /*is_top=*/false);
    out += R"(,"top_logprobs":[)";
    bool first = true;
    for (const auto& [id, logprob] : ChosenAndTop(token, static_cast<size_t>(style.count))) {
      if (!std::exchange(first, false)) out.push_back(',');
      append(id, id == token.token ? text : before.TextOf(style.tokenizer, id), logprob,
             /*is_top=*/true);
      out.push_back('}');
    }
    out += "]}";
  }
}

void AppendLogprobList(std::string& out, const LogprobStyle& style,
                       std::span<const TokenLogprobs> logprobs, PendingTokens& pending) {
  std::string elements;
  AppendLogprobElements(elements, style, logprobs, pending);
  out.append(R"({"content":[)").append(elements).append("]}");
}

void AppendPromptLogprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const PromptResult& result,
                          size_t count) {
  PendingTokens pending;
  out.push_back('[');
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    if (i > 0) out.push_back(',');
    const PendingTokens before = pending;
    const std::string text = i < prompt.size() ? pending.Push(tokenizer, prompt[i]) : "";
    if (!result.logprobs[i]) {
      out += "null";
      continue;
    }
    const TokenLogprobs& logprobs = *result.logprobs[i];
    out.push_back('{');
    bool first = true;
    const auto append = [&](int32_t token, float logprob, int64_t rank) {
      if (!std::exchange(first, false)) out.push_back(',');
      out += fmt::format(R"("{}":{{"logprob":)", token);
      AppendLogprob(out, logprob);
      out += fmt::format(R"(,"rank":{},"decoded_token":)", rank);
      json::AppendString(
          out, i < prompt.size() && token == prompt[i] ? text : before.TextOf(tokenizer, token));
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
