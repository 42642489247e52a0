#include "constraints/string_counter.h"

#include <algorithm>
#include <functional>

#include "constraints/constraint.h"

namespace sluice {
namespace {

int HexDigit(unsigned char c) {
  return c >= 'a' ? c - 'a' + 10 : c >= 'A' ? c - 'A' + 10 : c - '0';
}

}  // namespace

bool StringCounter::Take(unsigned char byte) {
  switch (stage_) {
    case Stage::kPlain:
      if (byte == '"') return false;
      if (byte == '\\') {
        stage_ = Stage::kBackslash;
        is_maybe_low_ = is_behind_high_;
        if (!is_maybe_low_) ++count_;
      } else if ((byte & 0xC0) != 0x80) {
        ++count_;
      }
      is_behind_high_ = false;
      return true;
    case Stage::kBackslash:
      if (byte == 'u') {
        stage_ = Stage::kDigits;
        num_digits_ = 0;
        digits_ = 0;
        return true;
      }
      stage_ = Stage::kPlain;
      if (is_maybe_low_) ++count_;
      return true;
    case Stage::kDigits:
      digits_ = static_cast<uint16_t>(digits_ << 4 | HexDigit(byte));
      if (++num_digits_ < 4) return true;
      stage_ = Stage::kPlain;
      if (is_maybe_low_ && (digits_ & 0xFC00) != 0xDC00) ++count_;
      is_behind_high_ = (digits_ & 0xFC00) == 0xD800;
      return true;
  }
  return true;
}

TokenLengths::TokenLengths(const std::vector<std::string>& tokens) {
  characters_.reserve(tokens.size());
  at_most_.resize(kShort + 1,
                  std::vector<uint32_t>(MaskWords(static_cast<int64_t>(tokens.size()))));
  for (const std::string& token : tokens) {
    const size_t id = characters_.size();
    StringCounter counter;
    for (const char c : token) {
      if (!counter.Take(static_cast<unsigned char>(c))) break;
    }
    characters_.push_back(counter.count());
    for (int32_t most = counter.count(); most <= kShort; ++most)
      at_most_[static_cast<size_t>(most)][id / 32] |= 1u << (id % 32);
    if (counter.count() > kShort) long_.push_back(static_cast<int32_t>(id));
    if (token.find('"') != std::string::npos) with_quote_.push_back(static_cast<int32_t>(id));
  }
  std::ranges::sort(long_, std::greater(), [this](int32_t id) { return characters(id); });
}

void TokenLengths::KeepAtMost(int32_t most, std::span<uint32_t> mask) const {
  if (most <= kShort) {
    const std::vector<uint32_t>& kept = at_most_[static_cast<size_t>(std::max(most, 0))];
    for (size_t i = 0; i < kept.size(); ++i) mask[i] &= kept[i];
    return;
  }
  for (const int32_t id : long_) {
    if (characters(id) <= most) return;
    mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
  }
}

}  // namespace sluice
