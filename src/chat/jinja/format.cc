#include "chat/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "base/text_search.h"
#include "chat/jinja/format_spec.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

std::string PadText(std::string_view text, int64_t width, char align, std::string_view fill) {
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  const int64_t missing = width > size ? width - size : 0;
  if (missing > static_cast<int64_t>(INT32_MAX)) SpendText(SIZE_MAX / 64);
  SpendText(text.size() + static_cast<size_t>(missing) * fill.size());
  int64_t left = 0;
  if (align == '>') left = missing;
  if (align == '^') left = missing / 2;
  if (align == 'c') left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit) {
  std::string out;
  int64_t count = 0;
  const auto has_more = [&] { return limit < 0 || count < limit; };
  const auto append = [&](std::string_view part) {
    SpendAppend(out.size(), part.size());
    out += part;
  };
  if (from.empty()) {
    // An empty `from` matches before every character and at the end of the text.
    SpendCharacters(text.size());
    for (size_t position = 0; position < text.size();) {
      if (has_more()) {
        append(to);
        ++count;
      }
      const size_t start = position;
      NextCodePoint(text, position);
      append(text.substr(start, position - start));
    }
    if (has_more()) append(to);
    return out;
  }
  SpendSearch(text.size() + from.size());
  const TextSearcher searcher(from);
  while (has_more()) {
    const size_t found = searcher.Find(text);
    if (found == std::string_view::npos) break;
    append(text.substr(0, found));
    append(to);
    text.remove_prefix(found + from.size());
    ++count;
    Spend(1);
  }
  append(text);
  return out;
}

namespace {

// Formats the `%` conversions of a text.
class PercentFormatter {
 public:
  PercentFormatter(const Value& format, const Value& arguments)
      : text_(format.text()), is_markup_(format.is_markup()), arguments_(arguments) {}

  std::string Run() {
    while (position_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', position_), text_.size());
      Append(text_.substr(position_, percent - position_));
      position_ = percent;
      if (position_ < text_.size()) Convert();
      Spend(1);
    }
    if (!used_mapping_ && !arguments_.is_dict() && next_ < NumValues()) {
      FailType("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  void Append(std::string_view text) {
    SpendAppend(out_.size(), text.size());
    out_ += text;
  }

  size_t NumValues() const { return arguments_.is_tuple() ? arguments_.items().size() : 1; }

  Value NextValue() {
    if (next_ >= NumValues()) FailType("not enough arguments for format string");
    ++next_;
    return arguments_.is_tuple() ? arguments_.items()[next_ - 1] : arguments_;
  }

  char Peek() const {
    if (position_ >= text_.size()) FailValue("incomplete format");
    return text_[position_];
  }

  int64_t ReadNumber() {
    if (Peek() == '*') {
      ++position_;
      return ToIndex(NextValue(), "* wants int, not a value");
    }
    int64_t number = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      number = number * 10 + (text_[position_++] - '0');
      if (number > INT32_MAX) FailValue("width too big");
    }
    return number;
  }

  void Convert() {
    ++position_;
    Value value;
    if (Peek() == '(') {
      if (!arguments_.is_dict()) FailType("format requires a mapping");
      const size_t start = ++position_;
      for (int depth = 1; depth > 0; ++position_) {
        if (position_ >= text_.size()) FailValue("incomplete format key");
        depth += text_[position_] == '(' ? 1 : text_[position_] == ')' ? -1 : 0;
      }
      const std::string_view name = text_.substr(start, position_ - 1 - start);
      const Value* found = arguments_.dict().Find(name);
      if (found == nullptr) Fail(FailureKind::kLookup, Repr(Value::String(std::string(name))));
      value = *found;
      used_mapping_ = true;
    }
    FormatSpec spec;
    bool is_left = false;
    bool is_zero = false;
    for (; std::string_view("#0- +").find(Peek()) != std::string_view::npos; ++position_) {
      switch (Peek()) {
        case '#': spec.alternate = true; break;
        case '0': is_zero = true; break;
        case '-': is_left = true; break;
        case '+': spec.sign = '+'; break;
        default:
          if (spec.sign != '+') spec.sign = ' ';
      }
    }
    spec.width = ReadNumber();
    if (spec.width < 0) {
      is_left = true;
      spec.width = -spec.width;
    }
    if (Peek() == '.') {
      ++position_;
      spec.precision = std::max<int64_t>(ReadNumber(), 0);
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++position_;
    const char type = text_[position_++];
    if (type == '%') {
      out_ += '%';
      return;
    }
    if (value.is_missing()) value = NextValue();
    spec.align = is_left ? '<' : '>';
    AppendConverted(value, type, spec, is_zero && !is_left);
  }

  void AppendConverted(const Value& value, char type, FormatSpec spec, bool is_zero) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = type == 's' ? Str(value) : Repr(value);
        SpendSearch(text.size());
        if (is_markup_ && !(type == 's' && value.is_markup())) text = EscapeHtml(text);
        if (type == 'a') text = AsciiRepr(text);
        if (spec.precision >= 0) text.resize(ByteOffset(text, static_cast<size_t>(spec.precision)));
        Append(PadText(text, spec.width, spec.align, " "));
        return;
      }
      case 'c': {
        std::string text;
        if (value.is_integral()) {
          text = FormatValue(value, "c");
        } else if (value.is_string() && value.string().num_characters == 1) {
          text = value.text();
        } else {
          FailType("%c requires int or char");
        }
        Append(PadText(text, spec.width, spec.align, " "));
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': AppendInteger(value, type, spec, is_zero); return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.is_undefined()) value.FailUndefined();
        if (!value.is_number()) FailType("must be real number, not " + value.TypeName());
        const double number = ToDouble(value);
        const auto precision =
            static_cast<int>(std::min<int64_t>(spec.precision < 0 ? 6 : spec.precision, 1000));
        if (is_zero) {
          spec.align = '=';
          spec.fill = "0";
        }
        Append(PadNumber(spec, std::signbit(number) && !std::isnan(number), "",
                         FormatMagnitude(std::fabs(number), type, precision, spec.alternate)));
        return;
      }
      default:
        FailValue(std::string("unsupported format character '") + type + "' at index " +
                  std::to_string(position_ - 1));
    }
  }

  void AppendInteger(const Value& value, char type, FormatSpec spec, bool is_zero) {
    if (value.is_undefined()) value.FailUndefined();
    Value integer = value;
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.is_float() && is_decimal) {
      if (!std::isfinite(value.as_float()))
        FailValue("cannot convert float NaN or infinity to integer");
      integer = Value::Integer(BigInteger::FromDouble(value.as_float()));
    }
    if (!integer.is_integral()) {
      FailType(std::string("%") + type + " format: a real number is required, not " +
               value.TypeName());
    }
    const int base = is_decimal ? 10 : type == 'o' ? 8 : 16;
    std::string digits = IntegerDigits(integer, base, type == 'X');
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      SpendText(static_cast<size_t>(spec.precision));
      digits.insert(0, std::string(static_cast<size_t>(spec.precision) - digits.size(), '0'));
    }
    if (is_zero) {
      spec.align = '=';
      spec.fill = "0";
    }
    const char* prefix = !spec.alternate || is_decimal ? ""
                         : type == 'o'                 ? "0o"
                         : type == 'x'                 ? "0x"
                                                       : "0X";
    Append(PadNumber(spec, ToBigInteger(integer).is_negative(), prefix, std::move(digits)));
  }

  static std::string AsciiRepr(std::string_view text) {
    SpendCharacters(text.size());
    std::string out;
    for (size_t position = 0; position < text.size();) {
      const char32_t c = NextCodePoint(text, position);
      c < 0x80 ? out.push_back(static_cast<char>(c)) : AppendPythonEscape(out, c);
    }
    return out;
  }

  std::string_view text_;
  bool is_markup_;
  const Value& arguments_;
  std::string out_;
  size_t position_ = 0;
  size_t next_ = 0;
  bool used_mapping_ = false;
};

// Implements str.format: replacement fields, and fields inside format specifications, one level
// deep.
class BraceFormatter {
 public:
  BraceFormatter(bool is_markup, const Arguments& arguments)
      : is_markup_(is_markup), arguments_(arguments) {}

  std::string Run(std::string_view text, int depth) {
    if (depth < 0) FailValue("Max string recursion exceeded");
    SpendCharacters(text.size());
    std::string out;
    for (size_t position = 0; position < text.size();) {
      const char c = text[position++];
      if (c != '{' && c != '}') {
        out.push_back(c);
        continue;
      }
      if (position < text.size() && text[position] == c) {
        out.push_back(c);
        ++position;
        continue;
      }
      if (c == '}') FailValue("Single '}' encountered in format string");
      const size_t start = position;
      int nesting = 1;
      int brackets = 0;
      for (; position < text.size() && nesting > 0; ++position) {
        if (text[position] == '[') ++brackets;
        if (text[position] == ']') brackets = std::max(brackets - 1, 0);
        if (text[position] == '{') ++nesting;
        if (text[position] == '}') --nesting;
      }
      if (nesting > 0)
        FailValue(start >= text.size() ? "Single '{' encountered in format string"
                                       : "expected '}' before end of string");
      const std::string field = Field(text.substr(start, position - 1 - start), depth);
      Spend(1);
      SpendAppend(out.size(), field.size());
      out += field;
    }
    return out;
  }

 private:
  std::string Field(std::string_view field, int depth) {
    size_t end = 0;
    for (int brackets = 0; end < field.size(); ++end) {
      if (field[end] == '[') ++brackets;
      if (field[end] == ']') --brackets;
      if (brackets <= 0 && (field[end] == '!' || field[end] == ':')) break;
    }
    Value value = Lookup(field.substr(0, end));
    if (end < field.size() && field[end] == '!') {
      if (end + 1 >= field.size())
        FailValue("end of string while looking for conversion specifier");
      switch (field[end + 1]) {
        case 's':
          value = Value::StringLike(Str(value), value.is_string() ? value : Value::String(""));
          break;
        case 'r':
        case 'a': value = Value::String(Repr(value)); break;
        default: FailValue(std::string("Unknown conversion specifier ") + field[end + 1]);
      }
      end += 2;
      if (end < field.size() && field[end] != ':')
        FailValue("expected ':' after conversion specifier");
    }
    const std::string spec = end < field.size() ? Run(field.substr(end + 1), depth - 1) : "";
    if (value.is_undefined() && !spec.empty())
      FailType("unsupported format string passed to Undefined.__format__");
    std::string text = FormatValue(value, spec);
    return is_markup_ && !value.is_markup() ? EscapeHtml(text) : text;
  }

  Value Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    Value value;
    const bool is_number = !first.empty() && std::all_of(first.begin(), first.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    const bool is_whole = first.size() == name.size();
    if (name.empty() || is_number) {
      if (is_whole && (name.empty() ? next_ < 0 : next_ > 0)) {
        FailValue("cannot switch between automatic and manual field numbering");
      }
      if (first.size() > 9) FailValue("Too many decimal digits in format string");
      const size_t index =
          name.empty() ? static_cast<size_t>(next_++) : std::stoul(std::string(first));
      if (is_number && is_whole) next_ = -1;
      if (index >= arguments_.positional.size()) {
        Fail(FailureKind::kLookup, "Replacement index " + std::to_string(index) +
                                       " out of range for positional args tuple");
      }
      value = arguments_.positional[index];
    } else {
      Spend(static_cast<int64_t>(arguments_.keyword.size() / 4));
      const auto found = std::find_if(arguments_.keyword.begin(), arguments_.keyword.end(),
                                      [first](const auto& entry) { return entry.first == first; });
      if (found == arguments_.keyword.end())
        Fail(FailureKind::kLookup, Repr(Value::String(std::string(first))));
      value = found->second;
    }
    for (size_t position = first_end; position < name.size();) {
      if (name[position] == '.') {
        const size_t end = std::min(name.find_first_of(".[", position + 1), name.size());
        if (end == position + 1) FailValue("Empty attribute in format string");
        value = GetAttribute(value, name.substr(position + 1, end - position - 1));
        position = end;
      } else if (name[position] == '[') {
        const size_t end = name.find(']', position);
        if (end == std::string_view::npos) FailValue("Missing ']' in format string");
        const std::string_view key = name.substr(position + 1, end - position - 1);
        if (key.empty()) FailValue("Empty attribute in format string");
        const bool is_index = key.size() < 10 && std::all_of(key.begin(), key.end(), [](char c) {
                                return c >= '0' && c <= '9';
                              });
        value = GetItem(value, is_index ? Value::Integer(int64_t{std::stol(std::string(key))})
                                        : Value::String(std::string(key)));
        position = end + 1;
      } else {
        FailValue("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  bool is_markup_;
  const Arguments& arguments_;
  int next_ = 0;  // The next automatic index; negative once a field has an explicit number.
};

}  // namespace

Value PercentFormat(const Value& format, const Value& arguments) {
  return Value::StringLike(PercentFormatter(format, arguments).Run(), format);
}

Value BraceFormat(const Value& format, Arguments& arguments) {
  return Value::StringLike(BraceFormatter(format.is_markup(), arguments).Run(format.text(), 2),
                           format);
}

std::string StripTags(std::string_view text) {
  std::string without;
  // Removes comments first, then tags: from an opening mark up to the next closing mark.
  const auto remove = [](std::string_view from, std::string_view open, std::string_view close) {
    std::string out;
    while (true) {
      const size_t start = from.find(open);
      const size_t end = start == std::string_view::npos ? start : from.find(close, start);
      if (end == std::string_view::npos) break;
      out += from.substr(0, start);
      from.remove_prefix(end + close.size());
    }
    return out + std::string(from);
  };
  SpendText(text.size());
  SpendCharacters(text.size());
  without = remove(remove(text, "<!--", "-->"), "<", ">");
  std::string out;
  for (size_t position = 0; position < without.size();) {
    const size_t start = position;
    const char32_t c = NextCodePoint(without, position);
    if (!IsSpace(c)) {
      out += without.substr(start, position - start);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return UnescapeHtml(out);
}

std::string UnescapeHtml(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"amp;", "&"},   {"lt;", "<"},   {"gt;", ">"},
      {"quot;", "\""}, {"apos;", "'"}, {"nbsp;", "\u00A0"}};
  // Maximum length of "&#" and the digits of a code point.
  constexpr size_t kMaxReference = 10;
  SpendCharacters(text.size());
  std::string out;
  for (size_t position = 0; position < text.size();) {
    if (text[position] != '&') {
      out.push_back(text[position++]);
      continue;
    }
    const std::string_view rest = text.substr(position + 1);
    const auto* named = std::find_if(std::begin(kNamed), std::end(kNamed),
                                     [&](const auto& n) { return rest.starts_with(n.first); });
    if (named != std::end(kNamed)) {
      out += named->second;
      position += 1 + named->first.size();
      continue;
    }
    const size_t end = rest.substr(0, kMaxReference).find(';');
    if (rest.starts_with("#") && end != std::string_view::npos && end > 1) {
      const bool is_hex = rest[1] == 'x' || rest[1] == 'X';
      const std::string digits(rest.substr(is_hex ? 2 : 1, end - (is_hex ? 2 : 1)));
      char* stop = nullptr;
      const unsigned long c = std::strtoul(digits.c_str(), &stop, is_hex ? 16 : 10);
      if (!digits.empty() && *stop == '\0' && c > 0 && c <= 0x10FFFF &&
          !(c >= 0xD800 && c < 0xE000)) {
        AppendUtf8(out, static_cast<char32_t>(c));
        position += 1 + end + 1;
        continue;
      }
    }
    out.push_back(text[position++]);
  }
  return out;
}

}  // namespace sluice::jinja
