// The part of the OpenAI API that `sluice chat` and `sluice complete` use.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/http_client.h"

namespace sluice {

// Parameters of every request. The server's default applies to absent ones.
struct AnswerSettings {
  std::string model;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> seed;
  json::Value tools = {};  // only for chat: a list as in the API, or null
  bool usage = false;      // whether to request token counts: AnswerEnd::usage
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text; incomplete if the answer was cut off
};

// Token counts that the server reports.
struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens = {};  // part of prompt_tokens; optional in the API
};

// A finished answer, and the reason why it ended.
struct AnswerEnd {
  std::string text;  // the whole text
  std::vector<ToolCall> calls;
  std::string finish_reason;  // "" if the caller cancelled the request
  bool cancelled = false;
  std::optional<AnswerUsage> usage = {};
};

class OpenAiClient {
 public:
  // `api_key` may be empty. If the path of `url` ends in /v1, no second /v1 is appended.
  OpenAiClient(Url url, const std::string& api_key, std::shared_ptr<const ClientTls> tls = {});

  using OnText = std::function<void(std::string_view text)>;

  // Returns the ids that /v1/models lists.
  Result<std::vector<std::string>> ListModels() const;
  // Streams an answer. `messages`: as in the API. Stops when `cancel_fd` is readable.
  Result<AnswerEnd> Chat(const AnswerSettings& settings, const json::Value& messages,
                         const OnText& on_text, int cancel_fd = -1) const;
  Result<AnswerEnd> Complete(const AnswerSettings& settings, const std::string& prompt,
                             const OnText& on_text, int cancel_fd = -1) const;

 private:
  Result<AnswerEnd> Stream(std::string_view path, const AnswerSettings& settings, json::Value body,
                           const OnText& on_text, int cancel_fd) const;

  HttpClient http_;
};

}  // namespace sluice
