#include "server/api/answer_json.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr size_t kMaxContext = 4;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void AppendInteger(std::string& out, int64_t value) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: return "error";
  }
  return "error";
}

void AppendFinish(std::string& out, const ChoiceDelta& delta) {
  if (!delta.finish) {
    out += R"("finish_reason":null,"stop_reason":null)";
    return;
  }
  out.append(R"("finish_reason":")")
      .append(delta.repetition ? "repetition" : FinishReasonName(*delta.finish))
      .append(R"(","stop_reason":)");
  if (delta.repetition) {
    out += R"("repetition_detected")";
  } else if (delta.stop_string) {
    json::AppendString(out, *delta.stop_string);
  } else if (delta.stop_token) {
    AppendInteger(out, *delta.stop_token);
  } else {
    out += "null";
  }
}

void AppendTokenIds(std::string& out, std::span<const int32_t> ids) {
  out.push_back('[');
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendInteger(out, ids[i]);
  }
  out.push_back(']');
}

void AppendLogprob(std::string& out, float logprob) {
  json::AppendDouble(out, logprob > -9999.0f ? static_cast<double>(logprob) : -9999.0);
}

void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens) {
  out += R"({"prompt_tokens":)";
  AppendInteger(out, prompt_tokens);
  out += R"(,"total_tokens":)";
  AppendInteger(out, prompt_tokens + completion_tokens);
  out += R"(,"completion_tokens":)";
  AppendInteger(out, completion_tokens);
}

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
      if (!first) out.push_back(',');
      first = false;
      out.push_back('"');
      AppendInteger(out, token);
      out += R"(":{"logprob":)";
      AppendLogprob(out, logprob);
      out += R"(,"rank":)";
      AppendInteger(out, rank);
      out += R"(,"decoded_token":)";
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

std::string ErrorEvent(const ApiError& error) {
  return "data: " + ErrorBody(error, /*spaced=*/true) + std::string(kEventEnd) +
         std::string(kDoneEvent);
}

}  // namespace sluice
