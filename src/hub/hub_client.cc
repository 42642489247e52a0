#include "hub/hub_client.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/log.h"
#include "base/suggest.h"
#include "hub/model_reference.h"

namespace sluice {
namespace {

constexpr int kMaxFailures = 5;
constexpr int64_t kLongestWait = 300;
constexpr size_t kMaxBodyBytes = size_t{64} << 20;
constexpr int kMaxRedirects = 5;
constexpr int kMaxSilences = 2;
constexpr size_t kMaxMessageBytes = 300;

// Returns the hub's own error message.
std::string MessageOf(const HttpHead& head) {
  std::string text(head.Find("x-error-message").substr(0, kMaxMessageBytes));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

}  // namespace

bool MayChange(int status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501);
}

std::optional<int64_t> WaitOf(const HttpOutcome& outcome) {
  if (outcome.retry_after_seconds || outcome.head.status != 429) return outcome.retry_after_seconds;
  // Example of the header: RateLimit: "api";r=0;t=55
  const std::string_view limit = outcome.head.Find("ratelimit");
  const size_t place = limit.find(";t=");
  int64_t seconds = 0;
  if (place == std::string_view::npos ||
      std::from_chars(limit.data() + place + 3, limit.data() + limit.size(), seconds).ec !=
          std::errc())
    return std::nullopt;
  return seconds;
}

std::string ProblemOf(const HttpOutcome& outcome) {
  if (!outcome.problem.empty()) return outcome.problem;
  const std::string message = MessageOf(outcome.head);
  const std::string_view type = outcome.head.Find("content-type");
  return fmt::format("status {}{}{}", outcome.head.status, message.empty() ? "" : ": " + message,
                     type.starts_with("text/html") ? ", a page (text/html)" : "");
}

bool Retries::Again(std::string_view problem, std::optional<int64_t> retry_after_seconds) {
  const bool at_once = std::exchange(at_once_, false);
  if (++failures_ >= kMaxFailures) return false;
  auto wait = std::chrono::milliseconds(at_once ? 0 : 250 << failures_);
  if (retry_after_seconds) {
    if (*retry_after_seconds > kLongestWait) return false;
    wait = std::chrono::seconds(std::max<int64_t>(*retry_after_seconds, 0));
  }
  if (at_once) {
    LOG_DEBUG("download", "{}: {}; continuing", what_, problem);
  } else {
    LOG_WARNING("download", "{}: {}; trying again in {:.1f} s", what_, problem,
                std::chrono::duration<double>(wait).count());
  }
  std::this_thread::sleep_for(wait);
  return true;
}

void Retries::Reset(bool at_once) {
  failures_ = 0;
  at_once_ = at_once;
}

std::string PercentEncoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

Result<HubClient> HubClient::Create(const HubEnvironment& environment, const std::string& token) {
  HubClient client;
  ASSIGN_OR_RETURN(client.endpoint_, environment.Endpoint());
  client.origin_ = OriginOf(client.endpoint_);
  if (client.origin_.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("HF_ENDPOINT: '{}' is not an address", client.endpoint_),
                "HF_ENDPOINT");
  }
  HubEnvironment with_token = environment;
  if (!token.empty()) with_token.hf_token = token;
  ASSIGN_OR_RETURN(client.token_, with_token.Token());
  client.transfers_ = std::make_unique<HttpTransfers>(
      HttpTransfers::Settings{.timeout_seconds = environment.timeout_seconds,
                              .certificates = environment.certificates,
                              .http_proxy = environment.http_proxy});
  return client;
}

std::string HubClient::TokenFor(std::string_view url) const {
  return OriginOf(url) == origin_ ? token_ : "";
}

Result<HttpOutcome> HubClient::Ask(const std::string& url, bool head_only, std::string& body) {
  Retries retries("asking " + endpoint_);
  std::string address = url;
  int redirects = 0;
  int silences = 0;  // number of consecutive attempts without a response
  while (true) {
    body.clear();
    TransferRequest request{.url = address, .head_only = head_only, .token = TokenFor(address)};
    request.on_body = [&](std::string_view part) {
      body += part;
      return body.size() <= kMaxBodyBytes;
    };
    HttpOutcome outcome = transfers_->Perform(std::move(request));
    const int status = outcome.head.status;
    if (outcome.ended_by_caller)
      outcome.problem = fmt::format("the answer has more than {} bytes", kMaxBodyBytes);
    if (outcome.problem.empty() && status >= 300 && status < 400 &&
        outcome.head.Find("x-linked-etag").empty() && OriginOf(outcome.redirect) == origin_ &&
        ++redirects <= kMaxRedirects) {
      address = outcome.redirect;  // the model has been renamed
      continue;
    }
    if (outcome.problem.empty() && !MayChange(status)) return outcome;
    const std::string problem = ProblemOf(outcome);
    const bool silent = status == 0 && ++silences >= kMaxSilences;
    if (!outcome.certain && !silent && retries.Again(problem, WaitOf(outcome))) continue;
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} cannot be reached: {}", endpoint_, problem), "model");
  }
}

Result<ModelInfo> HubClient::Info(const std::string& id, const std::string& revision) {
  std::string body;
  const std::string url = fmt::format("{}/api/models/{}/revision/{}", endpoint_, id,
                                      PercentEncoded(revision.empty() ? "main" : revision, false));
  ASSIGN_OR_RETURN(const HttpOutcome outcome, Ask(url, /*head_only=*/false, body));
  const std::string what = "model " + id;
  if (outcome.head.status != 200)
    return tl::unexpected<Error>(Refused(id, revision, outcome, what));
  auto info = ParseModelInfo(body);
  if (info) return info;
  return Fail(ErrorCode::kUnavailable,
              fmt::format("{} does not answer as a hub does: {} at {}, found {}; check HF_ENDPOINT "
                          "and the proxy's settings",
                          endpoint_, info.error().message, url, ProblemOf(outcome)),
              "model");
}

Result<RemoteFile> HubClient::Describe(const std::string& id, const std::string& commit,
                                       const std::string& name) {
  std::string body;
  const std::string url =
      fmt::format("{}/{}/resolve/{}/{}", endpoint_, id, commit, PercentEncoded(name, true));
  ASSIGN_OR_RETURN(const HttpOutcome outcome, Ask(url, /*head_only=*/true, body));
  const HttpHead& head = outcome.head;
  const bool elsewhere = head.status >= 300 && head.status < 400 && !outcome.redirect.empty();
  if (head.status != 200 && !elsewhere) {
    return tl::unexpected<Error>(
        Refused(id, commit, outcome, fmt::format("{} of model {}", name, id)));
  }
  const std::string_view linked_etag = head.Find("x-linked-etag");
  const std::string_view linked_size = head.Find("x-linked-size");
  const auto file = ParseFileInfo(linked_etag.empty() ? head.Find("etag") : linked_etag,
                                  linked_size.empty() ? head.Find("content-length") : linked_size);
  // The content-length of a redirect is not the length of the file.
  if (!file || (elsewhere && linked_size.empty())) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} does not answer as a hub does: expected the size and the ETag of "
                            "{}, found {}; check HF_ENDPOINT and the proxy's settings",
                            endpoint_, url, ProblemOf(outcome)),
                "model");
  }
  if (elsewhere && url.starts_with("https:") && !outcome.redirect.starts_with("https:")) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: {} leads to {}, without encryption", name, endpoint_,
                            OriginOf(outcome.redirect)),
                "model");
  }
  return RemoteFile{.name = name,
                    .etag = file->etag,
                    .size = file->size,
                    .url = elsewhere ? outcome.redirect : url};
}

std::vector<std::string> HubClient::ListModels(const std::string& query) {
  std::string body;
  const HttpOutcome outcome =
      transfers_->Perform({.url = fmt::format("{}/api/models?{}", endpoint_, query),
                           .token = TokenFor(endpoint_),
                           .on_body = [&](std::string_view part) {
                             body += part;
                             return body.size() <= kMaxBodyBytes;
                           }});
  if (!outcome.problem.empty() || outcome.head.status != 200) return {};
  return ParseModelList(body);
}

std::string HubClient::SimilarNames(const std::string& id) {
  const size_t slash = id.find('/');
  const std::string name = slash == std::string::npos ? id : id.substr(slash + 1);
  std::vector<std::string> ids =
      ListModels(fmt::format("search={}&limit=50", PercentEncoded(name, false)));
  // A hub's search finds ids that contain the search words, but not similar spellings. Looks for
  // similar spellings among the owner's models.
  if (ids.empty() && slash != std::string::npos) {
    ids = Nearest(id, ListModels(fmt::format("author={}&sort=downloads&limit=500",
                                             PercentEncoded(id.substr(0, slash), false))));
  }
  // Puts ids with the same name first, and otherwise keeps the hub's order.
  std::stable_partition(ids.begin(), ids.end(), [&](const std::string& found) {
    return AsciiLower(found.substr(found.find('/') + 1)) == AsciiLower(name);
  });
  if (ids.size() > 3) ids.resize(3);
  return ids.empty() ? ""
                     : fmt::format("; models of similar names there: {}", fmt::join(ids, ", "));
}

Error HubClient::Refused(const std::string& id, const std::string& revision,
                         const HttpOutcome& outcome, std::string_view what) {
  const HttpHead& head = outcome.head;
  const std::string_view code = head.Find("x-error-code");
  const std::string message = MessageOf(head);
  const std::string said = message.empty() ? "" : fmt::format(" ({})", message);
  const auto error = [&](ErrorCode kind, std::string text) {
    return Error{kind, std::move(text), "model"};
  };
  if (code == "GatedRepo" || (head.status == 403 && code != "DisabledRepo")) {
    return error(
        ErrorCode::kUnavailable,
        fmt::format("{} is gated at {}: {}{}. Ask for access at {}/{} with your account, then set "
                    "HF_TOKEN to a token of it that may read",
                    what, endpoint_,
                    token_.empty() ? "it needs a token, and HF_TOKEN is not set"
                                   : "the account of HF_TOKEN has no access to it",
                    said, endpoint_, id));
  }
  if (code == "RevisionNotFound" && !revision.empty()) {
    return error(ErrorCode::kNotFound,
                 fmt::format("{} has no revision '{}' at {}: expected a branch, a tag or a commit "
                             "that {}/{}/tree/main lists",
                             what, revision, endpoint_, endpoint_, id));
  }
  if (head.status == 401 || head.status == 404) {
    return error(ErrorCode::kUnavailable,
                 fmt::format("{} is not at {}: it does not exist, or it is private and {}{}{}",
                             what, endpoint_,
                             token_.empty() ? "HF_TOKEN is not set"
                                            : "the account of HF_TOKEN is not allowed to see it",
                             said, SimilarNames(id)));
  }
  return error(ErrorCode::kUnavailable,
               fmt::format("{} refuses {}: {}", endpoint_, what, ProblemOf(outcome)));
}

}  // namespace sluice
