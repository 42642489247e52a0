#include "server/door/model_field.h"

#include <cstddef>

#include "base/json.h"

namespace sluice {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kNone = std::string_view::npos;

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::optional<std::string> Find() {
    SkipSpace();
    if (!Take('{')) return std::nullopt;
    std::optional<std::string> found;
    SkipSpace();
    if (Take('}')) return std::nullopt;
    while (true) {
      SkipSpace();
      const std::string_view key = TakeString();
      if (key.empty()) return std::nullopt;
      SkipSpace();
      if (!Take(':')) return std::nullopt;
      SkipSpace();
      const bool is_model = IsModel(key);
      if (is_model && at_ < text_.size() && text_[at_] == '"') {
        const std::string_view value = TakeString();
        if (value.empty()) return std::nullopt;
        const auto name = json::Parse(value);
        found = name && name->is_string() ? std::optional(name->as_string()) : std::nullopt;
      } else {
        if (is_model) found.reset();
        if (!SkipValue()) return std::nullopt;
      }
      SkipSpace();
      if (Take('}')) return found;
      if (!Take(',')) return std::nullopt;
    }
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Consumes a string and returns it with its quotes; empty if there is none.
  std::string_view TakeString() {
    if (at_ >= text_.size() || text_[at_] != '"') return {};
    const size_t begin = at_++;
    while (true) {
      at_ = text_.find_first_of("\"\\", at_);
      if (at_ == kNone) {
        at_ = text_.size();
        return {};
      }
      if (text_[at_] == '"') break;
      at_ += 2;
    }
    ++at_;
    return text_.substr(begin, at_ - begin);
  }

  static bool IsModel(std::string_view key) {
    if (key.find('\\') == kNone) return key == R"("model")";
    const auto text = json::Parse(key);
    return text && text->is_string() && text->as_string() == "model";
  }

  // Skips to the end of the value by counting brackets, except those in strings.
  bool SkipValue() {
    size_t depth = 0;
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (TakeString().empty()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return at_ > begin;
        --depth;
        ++at_;
      } else if (c == ',' && depth == 0) {
        return at_ > begin;
      } else {
        ++at_;
      }
    }
    return false;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> FindModelField(std::string_view body) {
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  return Scanner(body).Find();
}

}  // namespace sluice
