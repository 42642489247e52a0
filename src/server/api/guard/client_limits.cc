#include "server/api/guard/client_limits.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace sluice {
namespace {

// Returns the time until the bucket has gained `missing`.
double SecondsUntil(double missing, int64_t per_minute) {
  return missing * 60 / static_cast<double>(per_minute);
}

tl::unexpected<ApiError> TooMany(std::string message, double seconds) {
  ApiError error;
  error.status = 429;
  error.type = "RateLimitError";
  error.message = std::move(message);
  error.retry_after = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(seconds)));
  return tl::unexpected<ApiError>(std::move(error));
}

void AppendLimit(std::vector<HttpHeader>& headers, std::string_view what, int64_t limit,
                 double level) {
  const auto remaining = static_cast<int64_t>(std::max(0.0, std::floor(level)));
  const double full = SecondsUntil(static_cast<double>(limit) - level, limit);
  headers.push_back({fmt::format("x-ratelimit-limit-{}", what), std::to_string(limit)});
  headers.push_back({fmt::format("x-ratelimit-remaining-{}", what), std::to_string(remaining)});
  headers.push_back({fmt::format("x-ratelimit-reset-{}", what), DurationText(full)});
}

}  // namespace

std::string DurationText(double seconds) {
  if (seconds < 1) return fmt::format("{}ms", std::ceil(seconds * 1000));
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{}s", whole / 60, whole % 60);
  return fmt::format("{}h{}m{}s", whole / 3600, whole / 60 % 60, whole % 60);
}

ClientLimits::Limits ClientLimitsOf(const ServerConfig& config) {
  return {config.limit_requests_per_minute, config.limit_tokens_per_minute,
          config.limit_concurrent_requests};
}

ClientLimits::Ticket::~Ticket() {
  const MutexLock lock(limits_->mutex_);
  if (num_parts_ > 0) --client_->running;
  if (--client_->tickets == 0) ++limits_->num_idle_;
  limits_->ForgetIdle();
}

void ClientLimits::Ticket::Stay() {
  const MutexLock lock(limits_->mutex_);
  if (num_parts_ > 0) ++num_parts_;
}

void ClientLimits::Ticket::Leave() {
  const MutexLock lock(limits_->mutex_);
  if (num_parts_ > 0 && --num_parts_ == 0) --client_->running;
}

void ClientLimits::Ticket::TakeTokens(int64_t count) {
  if (limits_->limits_.tokens_per_minute == 0) return;
  const MutexLock lock(limits_->mutex_);
  limits_->Refill(client_->tokens, limits_->limits_.tokens_per_minute);
  client_->tokens.level -= static_cast<double>(count);
}

void ClientLimits::Refill(Bucket& bucket, int64_t per_minute) {
  const Clock::time_point now = now_();
  const double seconds = std::chrono::duration<double>(now - bucket.time).count();
  const auto most = static_cast<double>(per_minute);
  bucket.level = std::min(most, bucket.level + seconds * most / 60);
  bucket.time = now;
}

ClientLimits::Clients::iterator ClientLimits::Find(uint64_t client) {
  const auto [place, is_new] = by_id_.try_emplace(client);
  if (is_new) {
    const Clock::time_point now = now_();
    clients_.push_front({.id = client,
                         .requests = {static_cast<double>(limits_.requests_per_minute), now},
                         .tokens = {static_cast<double>(limits_.tokens_per_minute), now}});
    place->second = clients_.begin();
    ++num_idle_;
    ForgetIdle();
  } else {
    clients_.splice(clients_.begin(), clients_, place->second);
  }
  const Clients::iterator found = clients_.begin();
  Refill(found->requests, limits_.requests_per_minute);
  Refill(found->tokens, limits_.tokens_per_minute);
  return found;
}

void ClientLimits::ForgetIdle() {
  if (num_idle_ <= kMaxIdleClients) return;
  for (auto client = std::prev(clients_.end());; --client) {
    if (client->tickets > 0) continue;
    by_id_.erase(client->id);
    clients_.erase(client);
    --num_idle_;
    return;
  }
}

ApiResult<std::shared_ptr<ClientLimits::Ticket>> ClientLimits::Enter(uint64_t client) {
  const MutexLock lock(mutex_);
  const Clients::iterator found = Find(client);
  if (limits_.concurrent_requests > 0 && found->running >= limits_.concurrent_requests) {
    return TooMany(fmt::format("Rate limit reached: {} requests of this client are running, and at "
                               "most {} may run at a time.",
                               found->running, limits_.concurrent_requests),
                   1);
  }
  if (limits_.requests_per_minute > 0 && found->requests.level < 1) {
    const double wait = SecondsUntil(1 - found->requests.level, limits_.requests_per_minute);
    return TooMany(fmt::format("Rate limit reached for requests: limit {} a minute. Please try "
                               "again in {}.",
                               limits_.requests_per_minute, DurationText(wait)),
                   wait);
  }
  if (limits_.tokens_per_minute > 0 && found->tokens.level <= 0) {
    const double wait = SecondsUntil(1 - found->tokens.level, limits_.tokens_per_minute);
    return TooMany(fmt::format("Rate limit reached for tokens: limit {} a minute. Please try again "
                               "in {}.",
                               limits_.tokens_per_minute, DurationText(wait)),
                   wait);
  }
  found->requests.level -= 1;
  ++found->running;
  if (found->tickets++ == 0) --num_idle_;
  return std::make_shared<Ticket>(shared_from_this(), found);
}

void ClientLimits::AppendHeaders(uint64_t client, std::vector<HttpHeader>& headers) {
  const MutexLock lock(mutex_);
  const Clients::iterator found = Find(client);
  if (limits_.requests_per_minute > 0)
    AppendLimit(headers, "requests", limits_.requests_per_minute, found->requests.level);
  if (limits_.tokens_per_minute > 0)
    AppendLimit(headers, "tokens", limits_.tokens_per_minute, found->tokens.level);
}

size_t ClientLimits::num_clients() const {
  const MutexLock lock(mutex_);
  return clients_.size();
}

}  // namespace sluice
