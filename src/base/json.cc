#include "base/json.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <new>
#include <unordered_map>

#include <simdjson.h>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_place.h"
#include "base/utf8.h"

namespace sluice::json {

Value Value::BigInteger(std::string digits) {
  Value value;
  value.data_ = Digits{std::move(digits)};
  return value;
}

bool Value::as_bool() const {
  CHECK(is_bool());
  return *std::get_if<bool>(&data_);
}
int64_t Value::as_integer() const {
  CHECK(is_integer());
  return *std::get_if<int64_t>(&data_);
}
double Value::as_double() const {
  CHECK(is_number());
  if (is_integer()) return static_cast<double>(as_integer());
  if (is_double()) return *std::get_if<double>(&data_);
  const std::string& digits = as_string();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) return digits[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  return value;
}
const std::string& Value::as_string() const {
  CHECK(is_string() || is_big_integer());
  return is_string() ? *std::get_if<std::string>(&data_) : std::get_if<Digits>(&data_)->text;
}
const Value::Array& Value::as_array() const {
  CHECK(is_array());
  return *std::get_if<Array>(&data_);
}
Value::Array& Value::as_array() {
  CHECK(is_array());
  return *std::get_if<Array>(&data_);
}
const Value::Object& Value::as_object() const {
  CHECK(is_object());
  return *std::get_if<Object>(&data_);
}
Value::Object& Value::as_object() {
  CHECK(is_object());
  return *std::get_if<Object>(&data_);
}

namespace {

std::atomic<uint64_t> num_names_compared{0};

// The index of the member named `key`, or object.size() if there is none.
size_t PlaceOfName(const Value::Object& object, std::string_view key) {
  size_t place = 0;
  while (place < object.size() && object[place].first != key) ++place;
  num_names_compared.fetch_add(place, std::memory_order_relaxed);
  return place;
}

}  // namespace

uint64_t NumNamesCompared() {
  return num_names_compared.load(std::memory_order_relaxed);
}

const Value* Value::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& object = as_object();
  const size_t place = PlaceOfName(object, key);
  return place == object.size() ? nullptr : &object[place].second;
}

void Value::Set(std::string_view key, Value value) {
  Object& object = as_object();
  const size_t place = PlaceOfName(object, key);
  if (place < object.size()) {
    object[place].second = std::move(value);
  } else {
    object.emplace_back(std::string(key), std::move(value));
  }
}

bool operator==(const Value& a, const Value& b) {
  const auto numeric = [](const Value& v) { return v.is_number() || v.is_bool(); };
  if (numeric(a) && numeric(b)) {
    const auto exact = [](const Value& v) { return v.is_bool() || v.is_integer(); };
    const auto integer = [](const Value& v) {
      return v.is_bool() ? int64_t{v.as_bool()} : v.as_integer();
    };
    if (exact(a) && exact(b)) return integer(a) == integer(b);
    if (a.is_big_integer() && b.is_big_integer()) return a.as_string() == b.as_string();
    const auto real = [](const Value& v) {
      return v.is_bool() ? (v.as_bool() ? 1.0 : 0.0) : v.as_double();
    };
    return real(a) == real(b);
  }
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kNull: return true;
    case Type::kString: return a.as_string() == b.as_string();
    case Type::kArray: return a.as_array() == b.as_array();
    case Type::kObject:
      if (a.as_object().size() != b.as_object().size()) return false;
      for (const Value::Member& member : a.as_object()) {
        const Value* other = b.Find(member.first);
        if (other == nullptr || !(member.second == *other)) return false;
      }
      return true;
    default: return false;
  }
}

const char* TypeName(Type type) {
  switch (type) {
    case Type::kNull: return "null";
    case Type::kBool: return "boolean";
    case Type::kInteger:
    case Type::kBigInteger: return "integer";
    case Type::kDouble: return "number";
    case Type::kString: return "string";
    case Type::kArray: return "array";
    case Type::kObject: return "object";
  }
  return "unknown";
}

namespace {

namespace od = simdjson::ondemand;

// Checks the grammar of RFC 8259 section 6. simdjson checks it only for numbers that it converts
// itself.
bool IsNumber(std::string_view token, bool& is_integer) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < token.size() && token[i] >= '0' && token[i] <= '9') ++i;
    return i > start;
  };
  if (i < token.size() && token[i] == '-') ++i;
  const size_t start = i;
  if (!digits()) return false;
  if (token[start] == '0' && i - start > 1) return false;
  is_integer = true;
  if (i < token.size() && token[i] == '.') {
    is_integer = false;
    ++i;
    if (!digits()) return false;
  }
  if (i < token.size() && (token[i] == 'e' || token[i] == 'E')) {
    is_integer = false;
    ++i;
    if (i < token.size() && (token[i] == '+' || token[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == token.size();
}

Result<Value> ParseNumber(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                            token.back() == '\t')) {
    token.remove_suffix(1);
  }
  bool is_integer = false;
  if (!IsNumber(token, is_integer)) {
    return Fail(ErrorCode::kInvalidArgument,
                "invalid JSON: '" + std::string(token.substr(0, 40)) + "' is not a number");
  }
  const char* end = token.data() + token.size();
  if (is_integer) {
    int64_t integer = 0;
    if (std::from_chars(token.data(), end, integer).ec == std::errc()) return Value(integer);
    return Value::BigInteger(std::string(token));
  }
  // A number too small for a double is zero, as in every other reader of JSON. A number too large
  // is refused, because JSON cannot express infinity.
  const double real = std::strtod(std::string(token).c_str(), nullptr);
  if (!std::isfinite(real)) {
    return Fail(ErrorCode::kUnsupported, "invalid JSON: the number " +
                                             std::string(token.substr(0, 40)) + " is out of range");
  }
  return Value(real);
}

tl::unexpected<Error> Malformed(simdjson::error_code error) {
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();  // Out of memory; the text may be valid.
  if (error == simdjson::STRING_ERROR) {
    return Fail(ErrorCode::kUnsupported,
                "invalid JSON: a string with half of a surrogate pair or an unknown escape");
  }
  return Fail(ErrorCode::kInvalidArgument,
              std::string("invalid JSON: ") + simdjson::error_message(error));
}

#define GET_OR_RETURN(declaration, expression) \
  declaration;                                 \
  if (const auto error = (expression)) return Malformed(error)

Result<Value> Convert(od::parser& parser, od::value source, const ParseLimits& limits, int depth);

// Unescapes a string or key directly into its result. simdjson's own buffer is not used, because
// simdjson does not check whether its allocation failed. At this point simdjson has found the
// closing quote and has checked UTF-8 and control characters.
Result<std::string> Unescape(const od::parser& parser, od::raw_json_string raw) {
  const char* const begin = raw.raw();
  const char* end = begin;
  bool has_escapes = false;
  for (; *end != '"'; ++end) {
    if (*end != '\\') continue;
    has_escapes = true;
    ++end;
  }
  if (!has_escapes) return std::string(begin, end);
  std::string text(static_cast<size_t>(end - begin) + simdjson::SIMDJSON_PADDING, '\0');
  auto* place = reinterpret_cast<uint8_t*>(text.data());
  GET_OR_RETURN(std::string_view unescaped, parser.unescape(raw, place).get(unescaped));
  text.resize(unescaped.size());
  if (text.size() < text.capacity() / 2) text.shrink_to_fit();
  return text;
}

Result<Value> ConvertArray(od::parser& parser, od::array source, const ParseLimits& limits,
                           int depth) {
  Value::Array array;
  for (auto element : source) {
    GET_OR_RETURN(od::value inner, element.get(inner));
    ASSIGN_OR_RETURN(Value value, Convert(parser, inner, limits, depth));
    array.push_back(std::move(value));
  }
  return Value(std::move(array));
}

Result<Value> ConvertObject(od::parser& parser, od::object source, const ParseLimits& limits,
                            int depth) {
  Value::Object object;
  // Maps each key to its index. Filled only for objects so large that a linear search would be
  // slow.
  std::unordered_map<std::string, size_t> places;
  constexpr size_t kSmall = 32;
  const auto find = [&](const std::string& key) -> Value* {
    if (object.size() < kSmall) {
      for (auto& [name, value] : object) {
        if (name == key) return &value;
      }
      return nullptr;
    }
    for (size_t i = places.size(); i < object.size(); ++i) places.emplace(object[i].first, i);
    const auto place = places.find(key);
    return place == places.end() ? nullptr : &object[place->second].second;
  };
  for (auto field : source) {
    GET_OR_RETURN(od::raw_json_string raw, field.key().get(raw));
    ASSIGN_OR_RETURN(std::string key, Unescape(parser, raw));
    GET_OR_RETURN(od::value inner, field.value().get(inner));
    ASSIGN_OR_RETURN(Value value, Convert(parser, inner, limits, depth));
    if (Value* earlier = find(key); earlier == nullptr) {
      object.emplace_back(std::move(key), std::move(value));
    } else if (limits.allow_duplicates) {
      *earlier = std::move(value);
    } else {
      return Fail(ErrorCode::kInvalidArgument, "invalid JSON: duplicate key '" + key + "'", key);
    }
  }
  return Value(std::move(object));
}

Result<Value> Convert(od::parser& parser, od::value source, const ParseLimits& limits, int depth) {
  GET_OR_RETURN(od::json_type type, source.type().get(type));
  if (type == od::json_type::array || type == od::json_type::object) {
    if (depth >= limits.max_depth) {
      return Fail(ErrorCode::kInvalidArgument, "invalid JSON: nested deeper than " +
                                                   std::to_string(limits.max_depth) + " levels");
    }
    if (type == od::json_type::array) {
      GET_OR_RETURN(od::array array, source.get_array().get(array));
      return ConvertArray(parser, array, limits, depth + 1);
    }
    GET_OR_RETURN(od::object object, source.get_object().get(object));
    return ConvertObject(parser, object, limits, depth + 1);
  }
  switch (type) {
    case od::json_type::number: return ParseNumber(source.raw_json_token());
    case od::json_type::string: {
      GET_OR_RETURN(od::raw_json_string raw, source.get_raw_json_string().get(raw));
      ASSIGN_OR_RETURN(std::string text, Unescape(parser, raw));
      return Value(std::move(text));
    }
    case od::json_type::boolean: {
      GET_OR_RETURN(bool value, source.get_bool().get(value));
      return Value(value);
    }
    default: {
      GET_OR_RETURN(bool null, source.is_null().get(null));
      if (!null) return Malformed(simdjson::N_ATOM_ERROR);
      return Value();
    }
  }
}

}  // namespace

Result<Value> ParsePadded(std::string_view text, const ParseLimits& limits, size_t& fault) {
  fault = std::string_view::npos;
  if (text.size() > limits.max_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "JSON text of " + std::to_string(text.size()) +
                                                 " bytes, at most " +
                                                 std::to_string(limits.max_bytes) + " are read");
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "invalid JSON: the text begins with a byte order mark; save it as UTF-8 without one");
  }
  static_assert(kTextPadding >= simdjson::SIMDJSON_PADDING);
  od::parser parser;
  const simdjson::padded_string_view padded(text, text.size() + kTextPadding);
  GET_OR_RETURN(od::document document, parser.iterate(padded).get(document));
  GET_OR_RETURN(bool scalar, document.is_scalar().get(scalar));
  if (scalar) {
    // simdjson's on-demand documents refuse get_value() for a scalar, so the text is parsed as the
    // only element of an array.
    std::string wrapped = "[";
    wrapped.append(text).append("]");
    Result<Value> array = ParseWithPlace(wrapped, limits, fault);
    if (fault != std::string_view::npos) --fault;  // Subtracts the added bracket.
    if (!array) return array;
    if (array->as_array().size() != 1)
      return Fail(ErrorCode::kInvalidArgument, "invalid JSON: text after the value");
    return std::move(array->as_array()[0]);
  }
  GET_OR_RETURN(od::value root, document.get_value().get(root));
  Result<Value> value = Convert(parser, root, limits, 0);
  if (!value) {
    Error error = std::move(value).error();
    const char* location = nullptr;
    // If the text ends too early, simdjson reports no location.
    fault = document.current_location().get(location) ? text.size()
                                                      : static_cast<size_t>(location - text.data());
    return tl::unexpected<Error>(std::move(error));
  }
  const char* rest = nullptr;
  if (!document.current_location().get(rest)) {
    fault = static_cast<size_t>(rest - text.data());
    return Fail(ErrorCode::kInvalidArgument, "invalid JSON: text after the value");
  }
  return value;
}

Result<Value> ParseWithPlace(std::string_view text, const ParseLimits& limits, size_t& fault) {
  std::string padded;
  padded.reserve(text.size() + kTextPadding);
  padded = text;
  return ParsePadded(padded, limits, fault);
}

TextPlace PlaceOf(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // If there is no newline, npos + 1 is 0.
  const auto starts_character = [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  };
  return {.line = 1 + std::count(before.begin(), before.end(), '\n'),
          .column = 1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start),
                                      before.end(), starts_character)};
}

Result<Value> Parse(std::string_view text, const ParseLimits& limits) {
  size_t fault = std::string_view::npos;
  Result<Value> value = ParseWithPlace(text, limits, fault);
  if (value || fault == std::string_view::npos) return value;
  Error error = std::move(value).error();
  const auto [line, column] = PlaceOf(text, fault);
  error.message += " (line " + std::to_string(line) + ", column " + std::to_string(column) + ")";
  return tl::unexpected<Error>(std::move(error));
}

void AppendString(std::string& out, std::string_view text) {
  out.push_back('"');
  size_t clean = 0;  // Start of the run that needs no escape.
  size_t i = 0;
  const auto flush = [&] { out.append(text.substr(clean, i - clean)); };
  while (i < text.size()) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      ++i;
      continue;
    }
    if (c >= 0x80) {
      if (const Utf8Sequence sequence = FirstUtf8Sequence(text.substr(i)); sequence.valid) {
        i += sequence.size;
        continue;
      }
    }
    flush();
    switch (c) {
      case '"': out.append("\\\""); break;
      case '\\': out.append("\\\\"); break;
      case '\n': out.append("\\n"); break;
      case '\r': out.append("\\r"); break;
      case '\t': out.append("\\t"); break;
      case '\b': out.append("\\b"); break;
      case '\f': out.append("\\f"); break;
      default:
        if (c >= 0x80) {
          out.append("\xEF\xBF\xBD");
        } else {
          static constexpr char kHex[] = "0123456789abcdef";
          out.append("\\u00").push_back(kHex[c >> 4]);
          out.push_back(kHex[c & 15]);
        }
    }
    clean = ++i;
  }
  flush();
  out.push_back('"');
}

void AppendDouble(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out.append("null");
    return;
  }
  char buffer[40];
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    plain ? std::chars_format::fixed : std::chars_format::scientific);
  CHECK(error == std::errc());
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out.append(text);
  if (plain && text.find('.') == std::string_view::npos) out.append(".0");
}

void Append(std::string& out, const Value& value) {
  switch (value.type()) {
    case Type::kNull: out.append("null"); break;
    case Type::kBool: out.append(value.as_bool() ? "true" : "false"); break;
    case Type::kInteger: out.append(std::to_string(value.as_integer())); break;
    case Type::kBigInteger: out.append(value.as_string()); break;
    case Type::kDouble: AppendDouble(out, value.as_double()); break;
    case Type::kString: AppendString(out, value.as_string()); break;
    case Type::kArray: {
      char separator = '[';
      if (value.as_array().empty()) out.push_back('[');
      for (const Value& element : value.as_array()) {
        out.push_back(separator);
        Append(out, element);
        separator = ',';
      }
      out.push_back(']');
      break;
    }
    case Type::kObject: {
      char separator = '{';
      if (value.as_object().empty()) out.push_back('{');
      for (const auto& [key, member] : value.as_object()) {
        out.push_back(separator);
        AppendString(out, key);
        out.push_back(':');
        Append(out, member);
        separator = ',';
      }
      out.push_back('}');
      break;
    }
  }
}

std::string Write(const Value& value) {
  std::string out;
  Append(out, value);
  return out;
}

}  // namespace sluice::json
