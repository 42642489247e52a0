// Additional requests to the upstream, besides the forwarded ones. They ask for the prompt that it
// made, and for its log probabilities at a disputed position.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/mutex.h"
#include "client/client_tls.h"
#include "client/http_client.h"
#include "client/url.h"
#include "shadow/asked.h"
#include "shadow/judge.h"
#include "tokenizer/tokenizer.h"

namespace sluice::shadow {

// A prompt as the upstream tokenizes it.
struct UpstreamPrompt {
  std::vector<int32_t> ids;
  std::string text;  // "" if the upstream does not report it
};

// Supports the APIs of vLLM (and sluice) and of llama.cpp's server. Uses only the API key passed to
// the constructor, if any, and never a client's key. Thread safety: all methods may be called from
// any thread.
class UpstreamView {
 public:
  // `api_key`: "" for none.
  UpstreamView(const Url& url, const std::string& api_key, std::shared_ptr<const ClientTls> tls);

  // Returns the prompt of a request; nullopt if the upstream does not report it.
  std::optional<UpstreamPrompt> Prompt(const Asked& asked, const json::Value& prompt) const;
  // Returns the text of token ids, decoded by the upstream's tokenizer; nullopt if the upstream
  // does not report it.
  std::optional<std::string> Detokenize(std::span<const int32_t> ids) const;
  // Returns the best tokens after `ids`. Tokens that the upstream returns as texts are looked up in
  // `candidates`.
  std::optional<UpstreamLogprobs> Logprobs(const Asked& asked, std::span<const int32_t> ids,
                                           const TokenLogprobs& candidates,
                                           const Tokenizer& tokenizer) const;

 private:
  enum class Kind { kUnknown, kVllm, kLlamaCpp };
  Kind kind() const;
  // Returns the answer's body; nullopt unless the status is 200 and the body is a JSON object.
  std::optional<json::Value> Ask(std::string_view path, const json::Value& body) const;

  const HttpClient http_;
  mutable Mutex mutex_;
  mutable Kind kind_ GUARDED_BY(mutex_) = Kind::kUnknown;
};

}  // namespace sluice::shadow
