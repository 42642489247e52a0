// Makes requests to a Hugging Face hub and interprets its errors.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/http_transfers.h"
#include "hub/hub_environment.h"
#include "hub/model_info.h"

namespace sluice {

// Limits the number of retries, and waits between them. Logs each wait.
class Retries {
 public:
  // `what`: the action as the log describes it, such as "downloading model.safetensors".
  explicit Retries(std::string what) : what_(std::move(what)) {}

  // Waits before another attempt; returns false if there were too many. Respects the wait that the
  // hub requests, within limits.
  bool Again(std::string_view problem, std::optional<int64_t> retry_after_seconds = std::nullopt);
  // Call on progress, so that earlier failures no longer count. If `at_once`, the next attempt
  // follows without a wait.
  void Reset(bool at_once);

 private:
  const std::string what_;
  int failures_ = 0;
  bool at_once_ = false;
};

// A file in a repository, as the hub describes it.
struct RemoteFile {
  std::string name;
  std::string etag;
  int64_t size = 0;
  std::string url;  // URL of its content
};

// Whether a retry may succeed after this status (408, 429, 5xx).
bool MayChange(int status);
// Returns the wait that the hub requests: Retry-After, or the end of RateLimit's window.
std::optional<int64_t> WaitOf(const HttpOutcome& outcome);
// Describes the failure in one line: "the connection broke: ...", "status 503 (text/html)".
std::string ProblemOf(const HttpOutcome& outcome);

// Thread safety: one thread.
class HubClient {
 public:
  // kInvalidArgument if the endpoint or token in `environment` is invalid. A `token` that is not
  // empty overrides the environment's token.
  static Result<HubClient> Create(const HubEnvironment& environment, const std::string& token);

  const std::string& endpoint() const { return endpoint_; }
  HttpTransfers& transfers() { return *transfers_; }

  // Returns the commit of a revision ("": main) and its files. Errors explain what to do about a
  // gated model, an unknown model (with similar names), an unknown revision, or a missing
  // connection.
  Result<ModelInfo> Info(const std::string& id, const std::string& revision);
  // Returns a file's URL, its size and its name in the cache (ETag).
  Result<RemoteFile> Describe(const std::string& id, const std::string& commit,
                              const std::string& name);
  // Returns the token if `url` is the hub's own; "" for other URLs.
  std::string TokenFor(std::string_view url) const;
  // Returns the error for a response that refuses `what`, such as "model a/b".
  Error Refused(const std::string& id, const std::string& revision, const HttpOutcome& outcome,
                std::string_view what);

 private:
  HubClient() = default;

  // Gets a small response from the hub, with retries. Follows redirects within the hub.
  Result<HttpOutcome> Ask(const std::string& url, bool head_only, std::string& body);
  // Returns the model ids that the hub lists for a query; empty if it does not answer.
  std::vector<std::string> ListModels(const std::string& query);
  // Returns "; models of similar names there: a/b, a/c", or "".
  std::string SimilarNames(const std::string& id);

  std::string endpoint_;
  std::string origin_;  // OriginOf(endpoint_)
  std::string token_;
  std::unique_ptr<HttpTransfers> transfers_;
};

// Escapes `text` as part of a URL, but not its slashes if `keep_slashes`.
std::string PercentEncoded(std::string_view text, bool keep_slashes);

}  // namespace sluice
