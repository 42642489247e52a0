#include "bench/stream_chunk.h"

#include <charconv>

#include "base/json.h"

namespace sluice::bench {
namespace {

constexpr int kMaxDepth = 64;

// Walks over JSON. Every method leaves the cursor after what it read; false once the text is not
// as expected.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : next_(text.data()), end_(text.data() + text.size()) {}

  bool Take(char c) {
    SkipSpace();
    if (next_ == end_ || *next_ != c) return false;
    ++next_;
    return true;
  }
  bool At(char c) {
    SkipSpace();
    return next_ != end_ && *next_ == c;
  }
  // The inside of a string, still escaped.
  bool String(std::string_view& inside) {
    if (!Take('"')) return false;
    const char* begin = next_;
    while (next_ != end_ && *next_ != '"') {
      if (*next_ == '\\' && next_ + 1 != end_) ++next_;
      ++next_;
    }
    if (next_ == end_) return false;
    inside = {begin, static_cast<size_t>(next_ - begin)};
    ++next_;
    return true;
  }
  bool Skip(int depth = 0) {
    SkipSpace();
    if (next_ == end_ || depth > kMaxDepth) return false;
    std::string_view ignored;
    if (*next_ == '"') return String(ignored);
    if (*next_ == '{') {
      return Members([&](std::string_view) { return Skip(depth + 1); });
    }
    if (*next_ == '[') {
      return Items([&](int) { return Skip(depth + 1); });
    }
    const char* begin = next_;
    while (next_ != end_ && *next_ != ',' && *next_ != '}' && *next_ != ']' && !IsSpace(*next_))
      ++next_;
    return next_ != begin;
  }
  // Absent, and nothing is read, for a value that is none.
  std::optional<int64_t> Integer() {
    SkipSpace();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(next_, end_, value);
    if (error != std::errc()) return std::nullopt;
    if (end != end_ && (*end == '.' || *end == 'e' || *end == 'E')) return std::nullopt;
    next_ = end;
    return value;
  }
  // Calls `on_member` with each key; it must read the value.
  template <typename F>
  bool Members(const F& on_member) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string_view key;
      if (!String(key) || !Take(':') || !on_member(key)) return false;
    } while (Take(','));
    return Take('}');
  }
  template <typename F>
  bool Items(const F& on_item) {
    if (!Take('[')) return false;
    if (Take(']')) return true;
    int index = 0;
    do {
      if (!on_item(index++)) return false;
    } while (Take(','));
    return Take(']');
  }
  const char* place() {
    SkipSpace();
    return next_;
  }

 private:
  static bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
  void SkipSpace() {
    while (next_ != end_ && IsSpace(*next_)) ++next_;
  }
  const char* next_;
  const char* const end_;
};

bool ReadText(Cursor& cursor, std::string_view& text) {
  return cursor.At('"') ? cursor.String(text) : cursor.Skip();
}

// A completion's choice has "text", a chat's "delta" or "message" with "content".
bool ReadChoice(Cursor& cursor, StreamChunk& chunk) {
  if (!cursor.At('{')) return cursor.Skip();
  return cursor.Members([&](std::string_view key) {
    if (key == "text") return ReadText(cursor, chunk.text);
    if ((key == "delta" || key == "message") && cursor.At('{')) {
      return cursor.Members([&](std::string_view inner) {
        return inner == "content" ? ReadText(cursor, chunk.text) : cursor.Skip();
      });
    }
    return cursor.Skip();
  });
}

bool ReadUsage(Cursor& cursor, StreamChunk& chunk) {
  chunk.has_usage = true;
  return cursor.Members([&](std::string_view key) {
    std::optional<int64_t>* count = key == "prompt_tokens"       ? &chunk.prompt_tokens
                                    : key == "completion_tokens" ? &chunk.completion_tokens
                                                                 : nullptr;
    if (count == nullptr) return cursor.Skip();
    *count = cursor.Integer();
    return count->has_value() || cursor.Skip();
  });
}

}  // namespace

bool ScanChunk(std::string_view json, StreamChunk& chunk) {
  chunk = {};
  Cursor cursor(json);
  return cursor.Members([&](std::string_view key) {
    if (key == "choices" && cursor.At('[')) {
      return cursor.Items([&](int index) {
        chunk.has_choices = true;
        return index == 0 ? ReadChoice(cursor, chunk) : cursor.Skip();
      });
    }
    if (key == "usage" && cursor.At('{')) return ReadUsage(cursor, chunk);
    if (key == "error" && !cursor.At('n')) {
      const char* begin = cursor.place();
      if (!cursor.Skip()) return false;
      chunk.error = {begin, static_cast<size_t>(cursor.place() - begin)};
      return true;
    }
    return cursor.Skip();
  });
}

std::string UnescapeJson(std::string_view escaped) {
  if (escaped.find('\\') == std::string_view::npos) return std::string(escaped);
  std::string quoted = "\"";
  quoted += escaped;
  quoted += '"';
  const auto value = json::Parse(quoted);
  return value && value->is_string() ? value->as_string() : std::string(escaped);
}

}  // namespace sluice::bench
