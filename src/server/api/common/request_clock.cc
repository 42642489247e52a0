#include "server/api/common/request_clock.h"

#include "base/json.h"

namespace sluice {

void RequestClock::OnTokens(int64_t count, Clock::time_point now) {
  if (count <= 0) return;
  if (!first_) first_ = now;
  last_ = now;
  num_tokens_ += count;
}

void RequestClock::AppendTo(std::string& out, bool whole) const {
  if (!first_) {
    out += "null";
    return;
  }
  const auto ms = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const double first = ms(*first_ - arrival_), generation = ms(*last_ - *first_);
  const double total = first + generation;
  const auto member = [&](const char* name, double value) {
    out += name;
    json::AppendDouble(out, value);
  };
  member(R"({"time_to_first_token_ms":)", first);
  member(R"(,"generation_time_ms":)", generation);
  member(R"(,"queue_time_ms":)", queue_seconds_ * 1e3);
  member(R"(,"mean_itl_ms":)",
         num_tokens_ > 1 ? generation / static_cast<double>(num_tokens_ - 1) : 0.0);
  member(R"(,"tokens_per_second":)",
         total > 0 ? static_cast<double>(num_tokens_) * 1e3 / total : 0.0);
  out += whole ? R"(,"speculative_decoding":null})" : "}";
}

}  // namespace sluice
