// The OpenAI API as chat and complete use it.
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

// Parameters of every request; for an absent one the server's default holds.
struct AnswerSettings {
  std::string model;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> seed;
  json::Value tools = {};  // of a chat: a list as in the API, or null
  bool usage = false;      // whether the server is asked to count tokens: AnswerEnd::usage
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, as far as it came
};

// What the server counted.
struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens = {};  // of the prompt; servers need not tell it
};

// How an answer ended.
struct AnswerEnd {
  std::string text;  // all of it
  std::vector<ToolCall> calls;
  std::string finish_reason;  // "" if it was stopped here
  bool cancelled = false;
  std::optional<AnswerUsage> usage = {};
};

class OpenAiClient {
 public:
  // `api_key` may be empty. A path of `url` that ends in /v1 is not followed by a second /v1.
  OpenAiClient(Url url, const std::string& api_key, std::shared_ptr<const ClientTls> tls = {});

  using OnText = std::function<void(std::string_view text)>;

  // The ids that /v1/models lists.
  Result<std::vector<std::string>> ListModels() const;
  // Streams an answer; `messages` as in the API. Stops when `cancel_fd` is readable.
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
