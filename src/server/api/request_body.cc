#include "server/api/request_body.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/json_count.h"
#include "base/utf8.h"
#include "server/api/field_reader.h"
#include "server/api/python_text.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 128;
constexpr size_t kMaxValues = size_t{1} << 20;  // Each costs some hundred bytes once parsed.
constexpr size_t kMaxIntegerDigits = 4300;      // Python's own limit.

tl::unexpected<ApiError> Unreadable() {
  ApiError error;
  error.detail = "There was an error parsing the body";
  return tl::unexpected<ApiError>(std::move(error));
}

// A reader of JSON that accepts what Python's does and knows where it stopped. Slow beside
// json::Parse: it is asked only for bodies which that one does not take.
class PythonJsonReader {
 public:
  explicit PythonJsonReader(std::string_view text) : text_(text) {}

  // None with reason() and position() on failure.
  std::optional<json::Value> Read() {
    SkipBlanks();
    std::optional<json::Value> value = ReadValue(0);
    if (!value) return std::nullopt;
    SkipBlanks();
    if (at_ < text_.size()) return Stop("Extra data", at_);
    return value;
  }
  const std::string& reason() const { return reason_; }
  size_t position() const { return position_; }
  bool too_deep() const { return too_deep_; }

 private:
  std::nullopt_t Stop(std::string reason, size_t position) {
    reason_ = std::move(reason);
    position_ = position;
    return std::nullopt;
  }
  bool Is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void SkipBlanks() {
    while (at_ < text_.size() && (Is(' ') || Is('\t') || Is('\n') || Is('\r'))) ++at_;
  }

  std::optional<json::Value> ReadValue(int depth) {
    if (at_ >= text_.size()) return Stop("Expecting value", at_);
    if (Is('{') || Is('[')) {
      if (depth >= kMaxDepth) {
        too_deep_ = true;
        return Stop("nested too deeply", at_);
      }
      return Is('{') ? ReadObject(depth + 1) : ReadArray(depth + 1);
    }
    if (Is('"')) {
      std::optional<std::string> text = ReadString();
      if (!text) return std::nullopt;
      return json::Value(std::move(*text));
    }
    if (Take("null")) return json::Value();
    if (Take("true")) return json::Value(true);
    if (Take("false")) return json::Value(false);
    if (Take("NaN")) return json::Value(std::numeric_limits<double>::quiet_NaN());
    if (Take("Infinity")) return json::Value(std::numeric_limits<double>::infinity());
    if (Take("-Infinity")) return json::Value(-std::numeric_limits<double>::infinity());
    return ReadNumber();
  }

  std::optional<json::Value> ReadNumber() {
    const size_t start = at_;
    size_t i = at_;
    const auto digit = [&] { return i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; };
    if (i < text_.size() && text_[i] == '-') ++i;
    if (!digit()) return Stop("Expecting value", start);
    if (text_[i] == '0') {
      ++i;
    } else {
      while (digit()) ++i;
    }
    bool integer = true;
    if (i + 1 < text_.size() && text_[i] == '.' && text_[i + 1] >= '0' && text_[i + 1] <= '9') {
      integer = false;
      ++i;
      while (digit()) ++i;
    }
    if (i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
      const size_t before = i++;
      if (i < text_.size() && (text_[i] == '+' || text_[i] == '-')) ++i;
      if (digit()) {
        integer = false;
        while (digit()) ++i;
      } else {
        i = before;
      }
    }
    at_ = i;
    const std::string_view token = text_.substr(start, i - start);
    if (!integer) return json::Value(PythonFloatFrom(token).value_or(0));
    int64_t value = 0;
    if (std::from_chars(token.data(), token.data() + token.size(), value).ec == std::errc())
      return json::Value(value);
    return json::Value::BigInteger(std::string(token));
  }

  std::optional<uint32_t> ReadHex4(size_t from) {
    if (from + 4 > text_.size()) return std::nullopt;
    uint32_t value = 0;
    const char* begin = text_.data() + from;
    if (std::from_chars(begin, begin + 4, value, 16).ptr != begin + 4) return std::nullopt;
    return value;
  }

  std::optional<std::string> ReadString() {
    const size_t begin = at_++;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) return Stop("Unterminated string starting at", begin);
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (static_cast<unsigned char>(c) < 0x20) return Stop("Invalid control character at", at_);
      if (c != '\\') {
        out.push_back(c);
        ++at_;
        continue;
      }
      if (at_ + 1 >= text_.size()) return Stop("Unterminated string starting at", begin);
      const char escape = text_[at_ + 1];
      static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      if (const size_t which = kFrom.find(escape); which != std::string_view::npos) {
        out.push_back(kTo[which]);
        at_ += 2;
        continue;
      }
      if (escape != 'u') return Stop("Invalid \\escape", at_);
      std::optional<uint32_t> code = ReadHex4(at_ + 2);
      if (!code) return Stop("Invalid \\uXXXX escape", at_ + 1);
      at_ += 6;
      if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
        const std::optional<uint32_t> low = ReadHex4(at_ + 2);
        if (low && *low >= 0xDC00 && *low < 0xE000) {
          code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
          at_ += 6;
        }
      }
      AppendUtf8(out, *code);
    }
  }

  std::optional<json::Value> ReadArray(int depth) {
    json::Value::Array array;
    ++at_;
    SkipBlanks();
    if (Is(']')) {
      ++at_;
      return json::Value(std::move(array));
    }
    while (true) {
      std::optional<json::Value> value = ReadValue(depth);
      if (!value) return std::nullopt;
      array.push_back(std::move(*value));
      SkipBlanks();
      if (Is(']')) {
        ++at_;
        return json::Value(std::move(array));
      }
      if (!Is(',')) return Stop("Expecting ',' delimiter", at_);
      ++at_;
      SkipBlanks();
    }
  }

  std::optional<json::Value> ReadObject(int depth) {
    json::Value object{json::Value::Object{}};
    ++at_;
    SkipBlanks();
    if (Is('}')) {
      ++at_;
      return object;
    }
    while (true) {
      if (!Is('"')) return Stop("Expecting property name enclosed in double quotes", at_);
      std::optional<std::string> key = ReadString();
      if (!key) return std::nullopt;
      SkipBlanks();
      if (!Is(':')) return Stop("Expecting ':' delimiter", at_);
      ++at_;
      SkipBlanks();
      std::optional<json::Value> value = ReadValue(depth);
      if (!value) return std::nullopt;
      // Looking a key up takes a walk; a hostile object does not get to make that quadratic.
      if (object.as_object().size() < 1024) {
        object.Set(*key, std::move(*value));
      } else {
        object.as_object().emplace_back(std::move(*key), std::move(*value));
      }
      SkipBlanks();
      if (Is('}')) {
        ++at_;
        return object;
      }
      if (!Is(',')) return Stop("Expecting ',' delimiter", at_);
      ++at_;
      SkipBlanks();
    }
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string reason_;
  size_t position_ = 0;
  bool too_deep_ = false;
};

bool HasHugeInteger(const json::Value& value) {
  switch (value.type()) {
    case json::Type::kBigInteger: return value.as_string().size() > kMaxIntegerDigits;
    case json::Type::kArray:
      for (const json::Value& element : value.as_array()) {
        if (HasHugeInteger(element)) return true;
      }
      return false;
    case json::Type::kObject:
      for (const auto& [key, member] : value.as_object()) {
        if (HasHugeInteger(member)) return true;
      }
      return false;
    default: return false;
  }
}

// UTF-16 or UTF-32 to UTF-8 by what the first bytes look like, as json.detect_encoding does; none
// if they are neither.
std::optional<std::string> FromWideEncoding(std::string_view body) {
  const auto byte = [&](size_t i) {
    return i < body.size() ? static_cast<unsigned char>(body[i]) : 0xFFu;
  };
  int width = 0;
  bool big = false;
  size_t skip = 0;
  if (byte(0) == 0 && byte(1) == 0 && byte(2) == 0xFE && byte(3) == 0xFF)
    width = 4, big = true, skip = 4;
  else if (byte(0) == 0xFF && byte(1) == 0xFE && byte(2) == 0 && byte(3) == 0)
    width = 4, skip = 4;
  else if (byte(0) == 0xFE && byte(1) == 0xFF)
    width = 2, big = true, skip = 2;
  else if (byte(0) == 0xFF && byte(1) == 0xFE)
    width = 2, skip = 2;
  else if (body.size() >= 4 && byte(0) == 0)
    width = byte(1) == 0 ? 4 : 2, big = true;
  else if (body.size() >= 4 && byte(1) == 0)
    width = byte(2) == 0 && byte(3) == 0 ? 4 : 2;
  else if (body.size() == 2 && byte(0) == 0)
    width = 2, big = true;
  else if (body.size() == 2 && byte(1) == 0)
    width = 2;
  if (width == 0) return std::nullopt;
  std::string out;
  const auto unit = [&](size_t at) {
    uint32_t value = 0;
    for (int i = 0; i < width; ++i) value |= byte(at + i) << 8 * (big ? width - 1 - i : i);
    return value;
  };
  for (size_t i = skip; i + width <= body.size(); i += width) {
    uint32_t code = unit(i);
    if (width == 2 && code >= 0xD800 && code < 0xDC00 && i + 4 <= body.size()) {
      const uint32_t low = unit(i + 2);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        i += 2;
      }
    }
    if (code > 0x10FFFF) return std::string("\xFF");
    AppendUtf8(out, code);
  }
  return out;
}

bool IsJsonContentType(const HttpRequest& request) {
  const std::string* header = request.Header("content-type");
  if (header == nullptr) return false;
  const std::string type = AsciiLower(header->substr(0, header->find(';')));
  const size_t end = type.find_last_not_of(" \t");
  return type.substr(0, end == std::string::npos ? 0 : end + 1) == "application/json";
}

}  // namespace

ApiResult<json::Value> ParseJsonAsPython(std::string_view text) {
  if (json::CountValues(text) > kMaxValues) {
    return BadRequest(fmt::format("the request body holds more than {} JSON values", kMaxValues));
  }
  json::ParseLimits limits;
  limits.max_depth = kMaxDepth;
  json::Value value;
  if (Result<json::Value> parsed = json::Parse(text, limits)) {
    value = *std::move(parsed);
  } else {
    if (!IsUtf8(text)) return Unreadable();
    PythonJsonReader reader(text);
    std::optional<json::Value> read = reader.Read();
    if (!read) {
      if (reader.too_deep()) return Unreadable();
      FieldError error;
      error.type = "json_invalid";
      error.location = fmt::format("body.{}", CountCharacters(text.substr(0, reader.position())));
      error.message = "JSON decode error";
      error.input = "<dict of 0 items>";
      error.context = fmt::format("{{'error': {}}}", PythonRepr(reader.reason()));
      return ValidationFailed({std::move(error)});
    }
    value = *std::move(read);
  }
  if (text.size() > kMaxIntegerDigits && HasHugeInteger(value)) return Unreadable();
  return value;
}

ApiResult<json::Value> ParseRequestBody(const HttpRequest& request) {
  if (!IsJsonContentType(request)) {
    ApiError error;
    error.type = "Bad Request";
    error.message =
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    return tl::unexpected<ApiError>(std::move(error));
  }
  std::string_view body = request.body;
  if (body.empty()) return json::Value();
  if (body.starts_with("\xEF\xBB\xBF")) {
    body.remove_prefix(3);
  } else if (std::optional<std::string> text = FromWideEncoding(body)) {
    return ParseJsonAsPython(*text);
  }
  return ParseJsonAsPython(body);
}

}  // namespace sluice
