// Questions to a Hugging Face hub, and what its refusals mean.
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

// How often something is tried again, and after what time. Each wait is told in the log.
class Retries {
 public:
  // `what` is for the log: "downloading model.safetensors".
  explicit Retries(std::string what) : what_(std::move(what)) {}

  // Waits before another attempt; false where there were enough. A hub that says how long to wait
  // is obeyed within limits.
  bool Again(std::string_view problem, std::optional<int64_t> retry_after_seconds = std::nullopt);
  // Something came: what failed before does not count. The next attempt follows without a wait if
  // `at_once`.
  void Reset(bool at_once);

 private:
  const std::string what_;
  int failures_ = 0;
  bool at_once_ = false;
};

// A file of a repository, as the hub describes it.
struct RemoteFile {
  std::string name;
  std::string etag;
  int64_t size = 0;
  std::string url;  // where its content is
};

// What an answer that is not the wanted one means: a status that may change (408, 429, 5xx).
bool MayChange(int status);
// The time that an answer asks to wait: Retry-After, or the end of the window that RateLimit names.
std::optional<int64_t> WaitOf(const HttpOutcome& outcome);
// One line on what went wrong: "the connection broke: ...", "status 503 (text/html)".
std::string ProblemOf(const HttpOutcome& outcome);

// Thread safety: one thread.
class HubClient {
 public:
  // kInvalidArgument for an endpoint or a token of `environment` that cannot be used. `token`
  // overrides that of the environment where it is not empty.
  static Result<HubClient> Create(const HubEnvironment& environment, const std::string& token);

  const std::string& endpoint() const { return endpoint_; }
  HttpTransfers& transfers() { return *transfers_; }

  // The commit of a revision ("" for main) and its files. Errors name what to do: a gated model, an
  // unknown one (with the names of similar ones), an unknown revision, no connection.
  Result<ModelInfo> Info(const std::string& id, const std::string& revision);
  // Where a file is and what it is called in the cache.
  Result<RemoteFile> Describe(const std::string& id, const std::string& commit,
                              const std::string& name);
  // The token where `url` is the hub's own, "" elsewhere.
  std::string TokenFor(std::string_view url) const;
  // The error that refuses `what` ("model a/b").
  Error Refused(const std::string& id, const std::string& revision, const HttpOutcome& outcome,
                std::string_view what);

 private:
  HubClient() = default;

  // A small answer of the hub itself, after retries; redirects within the hub are followed.
  Result<HttpOutcome> Ask(const std::string& url, bool head_only, std::string& body);
  // The ids that the hub finds for the query of its list of models; none where it does not answer.
  std::vector<std::string> ListModels(const std::string& query);
  // "; models of similar names there: a/b, a/c" or "".
  std::string SimilarNames(const std::string& id);

  std::string endpoint_;
  std::string origin_;  // OriginOf(endpoint_)
  std::string token_;
  std::unique_ptr<HttpTransfers> transfers_;
};

// `text` as a part of an address; slashes stay if `keep_slashes`.
std::string PercentEncoded(std::string_view text, bool keep_slashes);

}  // namespace sluice
