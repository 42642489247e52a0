#include "parsers/stop_search.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kTrimBytes = 4096;

bool ContinuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

StopSearch::StopSearch(StopRules rules) : rules_(std::move(rules)) {
  for (const std::string& stop : rules_.strings) {
    longest_stop_bytes_ = std::max(longest_stop_bytes_, stop.size());
    if (rules_.include_in_output) continue;
    const auto continuing = static_cast<size_t>(std::ranges::count_if(stop, ContinuesCharacter));
    held_characters_ = std::max(held_characters_, stop.size() - continuing - 1);
  }
}

std::optional<std::string> StopSearch::Add(std::string_view text, bool searched) {
  text_ += text;
  std::optional<std::string> match;
  if (searched && !text.empty() && !rules_.strings.empty()) Search(text.size(), match);
  matched_ = match.has_value();
  return match;
}

// Searches the new bytes, and enough bytes before them to contain the start of a stop string.
void StopSearch::Search(size_t new_bytes, std::optional<std::string>& match) {
  size_t best_begin = 0, best_end = std::string::npos;
  for (const std::string& stop : rules_.strings) {
    const size_t reach = new_bytes + stop.size() - 1;
    const size_t from = text_.size() > reach ? text_.size() - reach : 0;
    const size_t begin = text_.find(stop, from);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
      match = stop;
    }
  }
  if (match) text_.resize(std::max(taken_, rules_.include_in_output ? best_end : best_begin));
}

std::string StopSearch::Take() {
  size_t end = text_.size();
  if (!matched_) {
    for (size_t i = 0; i < held_characters_ && end > 0; ++i) {
      --end;
      while (end > 0 && ContinuesCharacter(text_[end])) --end;
    }
  }
  return TakeUntil(end);
}

std::string StopSearch::TakeUntil(size_t end) {
  if (end <= taken_) return {};
  std::string result = text_.substr(taken_, end - taken_);
  taken_ = end;
  if (taken_ > kTrimBytes + longest_stop_bytes_) {
    const size_t cut = taken_ - longest_stop_bytes_;
    text_.erase(0, cut);
    taken_ -= cut;
  }
  return result;
}

std::string StopSearch::TakeAll() {
  std::string result = TakeUntil(text_.size());
  text_.clear();
  taken_ = 0;
  return result;
}

}  // namespace sluice
