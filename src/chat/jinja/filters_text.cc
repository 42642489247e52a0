// Filters that convert text to text.
#include <cmath>

#include "chat/jinja/arguments.h"
#include "chat/jinja/filters.h"
#include "chat/jinja/format.h"
#include "chat/jinja/numbers.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

// Returns str(value), or the value itself if it is a string.
Value SoftStr(const Value& value) {
  return value.is_string() ? value : Value::String(Str(value));
}

template <std::string (*Convert)(std::string_view)>
Value Converted(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("this filter", arguments);
  const Value text = SoftStr(input);
  SpendText(text.text().size());
  return Value::StringLike(Convert(text.text()), text);
}

bool BeginsWord(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
}

// Unlike str.title, words begin only after white space, hyphens and opening brackets.
std::string TitleWords(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    size_t next = position;
    const bool is_separator = BeginsWord(NextCodePoint(text, next));
    while (next < text.size()) {
      size_t after = next;
      if (BeginsWord(NextCodePoint(text, after)) != is_separator) break;
      next = after;
    }
    position = next;
    const std::string_view word = text.substr(start, next - start);
    if (is_separator) {
      out += word;
    } else {
      size_t first = 0;
      NextCodePoint(word, first);
      out += Upper(word.substr(0, first));
      out += Lower(word.substr(first));
    }
  }
  return out;
}

Value Trim(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_trim", arguments, {"chars"});
  const Value text = SoftStr(input);
  const std::string* characters = bound.IsNoneOrAbsent(0) ? nullptr : &bound.Text(0);
  return Value::StringLike(std::string(Strip(text.text(), Side::kBoth, characters)), text);
}

Value Replace(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = bound.IsNoneOrAbsent(2) ? -1 : bound.Index(2, -1);
  return Value::String(ReplaceText(Str(input), Str(bound[0]), Str(bound[1]), count));
}

Value Indent(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_indent", arguments, {"width", "first", "blank"});
  if (input.is_undefined()) input.FailUndefined();
  if (!input.is_string())
    FailType("unsupported operand type(s) for +=: '" + input.TypeName() + "' and 'str'");
  std::string indention;
  if (bound.Has(0) && bound[0].is_string()) {
    indention = bound[0].text();
  } else {
    const int64_t width = bound.Index(0, 4);
    PadText("", width, '<', " ");  // Called only because it fails if `width` is too large.
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool indents_blank = bound.Flag(2);
  const std::string text = input.text() + "\n";
  SpendText(text.size());
  std::string out;
  bool is_first = true;
  for (size_t position = 0; const auto line = NextLine(text, position, false);) {
    SpendAppend(out.size(), 1 + indention.size() + line->size());
    if (!is_first) {
      out += "\n";
      if (indents_blank || !line->empty()) out += indention;
    } else if (bound.Flag(1)) {
      out += indention;
    }
    is_first = false;
    out += *line;
  }
  return Value::StringLike(std::move(out), input);
}

Value Center(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_center", arguments, {"width"});
  const Value text = SoftStr(input);
  const int64_t width = bound.Index(0, 80);
  return Value::StringLike(PadText(text.text(), width, 'c', " "), text);
}

Value Truncate(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = bound.Index(0, 255);
  const std::string end = bound.Has(2) ? bound.Text(2) : "...";
  const int64_t leeway = bound.IsNoneOrAbsent(3) ? 5 : bound.Index(3, 5);
  const auto end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length) {
    Fail(FailureKind::kRuntime,
         "expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  }
  if (leeway < 0)
    Fail(FailureKind::kRuntime, "expected leeway >= 0, got " + std::to_string(leeway));
  if (static_cast<int64_t>(Length(input)) <= length + leeway) return input;
  if (!input.is_string()) FailType("the filter 'truncate' needs a string, not " + input.TypeName());
  const size_t kept = ByteOffset(input.text(), static_cast<size_t>(length - end_length));
  SpendSearch(kept);
  std::string text = input.text().substr(0, kept);
  if (!bound.Flag(1)) {
    const size_t blank = text.rfind(' ');
    if (blank != std::string::npos) text.resize(blank);
  }
  return Value::StringLike(text + end, input);
}

Value WordCount(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_wordcount", arguments);
  const std::string text = Str(input);
  SpendCharacters(text.size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, position);
    const bool is_word = IsAlphanumeric(c) || c == '_';
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::Integer(count);
}

Value Format(Interpreter&, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    Fail(FailureKind::kRuntime, "can't handle positional and keyword arguments at the same time");
  }
  if (arguments.keyword.empty())
    return PercentFormat(SoftStr(input), Value::Tuple(std::move(arguments.positional)));
  auto dict = std::make_shared<DictData>();
  for (auto& [name, value] : arguments.keyword) dict->Set(Value::String(name), std::move(value));
  return PercentFormat(SoftStr(input), Value::Dict(std::move(dict)));
}

Value String(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("soft_str", arguments);
  return SoftStr(input);
}

Value Safe(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_mark_safe", arguments);
  return Value::Markup(Str(input));
}

Value Escape(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("escape", arguments);
  return input.is_markup() ? input : Value::Markup(EscapeHtml(Str(input)));
}

Value ForceEscape(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_forceescape", arguments);
  return Value::Markup(EscapeHtml(Str(input)));
}

Value StripTagsFilter(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_striptags", arguments);
  return Value::String(StripTags(Str(input)));
}

std::string UrlQuote(std::string_view text, bool for_query) {
  SpendCharacters(text.size());
  SpendText(text.size() * 3);
  std::string out;
  for (const char byte : text) {
    const auto c = static_cast<unsigned char>(byte);
    if (c < 0x80 && (std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~' ||
                     (c == '/' && !for_query))) {
      out.push_back(byte);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      out.push_back('%');
      out.push_back("0123456789ABCDEF"[c >> 4]);
      out.push_back("0123456789ABCDEF"[c & 15]);
    }
  }
  return out;
}

Value UrlEncode(Interpreter&, const Value& input, Arguments& arguments) {
  ExpectNoArguments("do_urlencode", arguments);
  if (input.is_string() || TryIterate(input) == nullptr)
    return Value::String(UrlQuote(Str(input), false));
  const Value pairs =
      input.is_dict() ? Value::FromObject(std::make_shared<DictView>(input, DictView::Part::kItems))
                      : input;
  std::string out;
  for (const Value& pair : ToVector(pairs)) {
    const std::vector<Value> parts = ToVector(pair);
    if (parts.size() != 2)
      FailValue("not enough values to unpack (expected 2, got " + std::to_string(parts.size()) +
                ")");
    const std::string field = UrlQuote(Str(parts[0]), true) + "=" + UrlQuote(Str(parts[1]), true);
    SpendAppend(out.size(), field.size());
    if (!out.empty()) out += "&";
    out += field;
  }
  return Value::String(std::move(out));
}

Value XmlAttributes(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_xmlattr", arguments, {"autospace"});
  if (input.is_undefined()) input.FailUndefined();
  if (!input.is_dict()) FailType("the filter 'xmlattr' needs a mapping, not " + input.TypeName());
  std::string out;
  for (const auto& [key, value] : input.dict().entries()) {
    Spend(1);
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string())
      FailType("expected string or bytes-like object, got '" + key.TypeName() + "'");
    SpendCharacters(key.text().size());
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      FailValue("Invalid character in attribute name: " + Repr(key));
    }
    const std::string field = EscapeHtml(key.text()) + "=\"" +
                              (value.is_markup() ? value.text() : EscapeHtml(Str(value))) + "\"";
    SpendAppend(out.size(), field.size());
    if (!out.empty()) out += " ";
    out += field;
  }
  if (bound.Flag(0, true) && !out.empty()) out.insert(0, " ");
  return Value::String(std::move(out));
}

Value FileSize(Interpreter&, const Value& input, Arguments& arguments) {
  const Bound bound("do_filesizeformat", arguments, {"binary"});
  const double bytes = FloatOf(input);
  const bool binary = bound.Flag(0);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(std::to_string(static_cast<int64_t>(bytes)) + " Bytes");
  static constexpr char kPrefixes[] = "kMGTPEZY";
  double unit = base * base;
  int i = 0;
  for (; i < 7 && bytes >= unit; ++i) unit *= base;
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return Value::String(FormatFixed(base * bytes / unit, 1) + " " + prefix + (binary ? "iB" : "B"));
}

}  // namespace

void AddTextFilters(FilterTable& table) {
  table.insert({{"upper", Converted<Upper>},
                {"lower", Converted<Lower>},
                {"capitalize", Converted<Capitalize>},
                {"title", Converted<TitleWords>},
                {"trim", Trim},
                {"replace", Replace},
                {"indent", Indent},
                {"center", Center},
                {"truncate", Truncate},
                {"wordcount", WordCount},
                {"format", Format},
                {"string", String},
                {"safe", Safe},
                {"e", Escape},
                {"escape", Escape},
                {"forceescape", ForceEscape},
                {"striptags", StripTagsFilter},
                {"urlencode", UrlEncode},
                {"xmlattr", XmlAttributes},
                {"filesizeformat", FileSize}});
}

}  // namespace sluice::jinja
