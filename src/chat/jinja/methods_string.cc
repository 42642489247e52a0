// Methods of str, and of Markup, which escapes other texts when they are combined with it.
#include <algorithm>
#include <unordered_map>

#include "base/text_search.h"
#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/methods.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

using Method = Value (*)(const Value& self, Arguments& arguments);

// Returns the text of an argument that becomes part of the result, escaped if `self` is Markup.
std::string Woven(const Value& self, const Value& argument) {
  return self.is_markup() && !argument.is_markup() ? EscapeHtml(argument.text()) : argument.text();
}

Value Like(const Value& self, std::string text) {
  return Value::StringLike(std::move(text), self);
}

template <std::string (*Convert)(std::string_view)>
Value Converted(const Value& self, Arguments& arguments) {
  ExpectNoArguments(__func__, arguments);
  SpendText(self.text().size());
  return Like(self, Convert(self.text()));
}

template <Side kSide>
Value Stripped(const Value& self, Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const std::string* characters = bound.IsNoneOrAbsent(0) ? nullptr : &bound.Text(0);
  return Like(self, std::string(Strip(self.text(), kSide, characters)));
}

// Implements str.startswith and endswith: the argument is a string or a tuple of strings, searched
// within [start, end).
template <bool kAtStart>
Value Affix(const Value& self, Arguments& arguments) {
  const Bound bound(kAtStart ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  std::string_view text = self.text();
  Value part;
  if (bound.Has(1)) {
    part = GetSlice(self, bound[1], bound.Get(2, Value::None()), Value::None());
    const int64_t size = static_cast<int64_t>(self.string().num_characters);
    if (!bound[1].is_none() && ToIndex(bound[1], "slice index") > size) return Value::Bool(false);
    text = part.text();
  }
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      FailType("startswith first arg must be str or a tuple of str, not " + affix.TypeName());
    return kAtStart ? StartsWith(text, affix.text()) : EndsWith(text, affix.text());
  };
  if (!bound[0].is_tuple()) return Value::Bool(matches(bound[0]));
  return Value::Bool(std::any_of(bound[0].items().begin(), bound[0].items().end(), matches));
}

Value Replace(const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  SpendText(bound.Text(1).size());
  return Like(self,
              ReplaceText(self.text(), bound.Text(0), Woven(self, bound[1]), bound.Index(2, -1)));
}

// Visits the words of a text, from its end if `kFromRight`. After `limit` words, visits the rest as
// one word.
template <bool kFromRight, typename Visit>
void ForEachWord(std::string_view text, int64_t limit, const Visit& visit) {
  for (int64_t count = 0;; ++count) {
    text = Strip(text, kFromRight ? Side::kRight : Side::kLeft);
    if (text.empty()) return;
    if (limit >= 0 && count == limit) return visit(text);
    size_t position = kFromRight ? text.size() : 0;
    while (kFromRight ? position > 0 : position < text.size()) {
      size_t next = position;
      const char32_t c = kFromRight ? PreviousCodePoint(text, next) : NextCodePoint(text, next);
      if (IsSpace(c)) break;
      position = next;
    }
    const std::string_view left = text.substr(0, position);
    const std::string_view right = text.substr(position);
    SpendCharacters(kFromRight ? right.size() : left.size());
    visit(kFromRight ? right : left);
    text = kFromRight ? left : right;
  }
}

// Visits the parts of a text between separators, in the same way.
template <bool kFromRight, typename Visit>
void ForEachPart(std::string_view text, std::string_view separator, int64_t limit,
                 const Visit& visit) {
  const BasicTextSearcher<kFromRight> searcher(separator);
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    const size_t found = searcher.Find(text);
    if (found == std::string_view::npos) break;
    const std::string_view left = text.substr(0, found);
    const std::string_view right = text.substr(found + separator.size());
    visit(kFromRight ? right : left);
    text = kFromRight ? left : right;
  }
  visit(text);
}

template <bool kFromRight>
Value Split(const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = bound.Index(1, -1);
  std::vector<Value> values;
  const auto add = [&](std::string_view part) {
    if (values.size() == values.capacity()) RequireMemory(values.size() * 2 * sizeof(Value));
    values.push_back(Like(self, std::string(part)));
  };
  if (bound.IsNoneOrAbsent(0)) {
    ForEachWord<kFromRight>(self.text(), limit, add);
  } else {
    const std::string& separator = bound.Text(0);
    if (separator.empty()) FailValue("empty separator");
    SpendSearch(self.text().size() + separator.size());
    ForEachPart<kFromRight>(self.text(), separator, limit, add);
  }
  if (kFromRight) std::reverse(values.begin(), values.end());
  return Value::List(std::move(values));
}

Value SplitIntoLines(const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  std::vector<Value> lines;
  for (size_t position = 0; auto line = NextLine(self.text(), position, bound.Flag(0));) {
    if (lines.size() == lines.capacity()) RequireMemory(lines.size() * 2 * sizeof(Value));
    lines.push_back(Like(self, std::string(*line)));
  }
  return Value::List(std::move(lines));
}

template <bool kFromRight>
Value Partition(const Value& self, Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& separator = bound.Text(0);
  if (separator.empty()) FailValue("empty separator");
  SpendSearch(text.size() + separator.size());
  const size_t found = BasicTextSearcher<kFromRight>(separator).Find(text);
  if (found == std::string::npos) {
    if (kFromRight) return Value::Tuple({Like(self, ""), Like(self, ""), self});
    return Value::Tuple({self, Like(self, ""), Like(self, "")});
  }
  return Value::Tuple({Like(self, text.substr(0, found)), Like(self, separator),
                       Like(self, text.substr(found + separator.size()))});
}

Value Join(const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  const IteratorPointer iterator = TryIterate(bound[0]);
  if (iterator == nullptr) FailType("can only join an iterable");
  std::string text;
  Value item;
  for (int64_t i = 0; iterator->Next(item); ++i) {
    if (!item.is_string()) {
      FailType("sequence item " + std::to_string(i) + ": expected str instance, " +
               item.TypeName() + " found");
    }
    const std::string woven = Woven(self, item);
    SpendAppend(text.size(), self.text().size() + woven.size());
    if (i > 0) text += self.text();
    text += woven;
  }
  return Like(self, std::move(text));
}

// Returns the offset of the argument within [start, end) in code points; -1 if it is not found.
template <bool kFromRight>
int64_t Locate(const Value& self, Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.Text(0);
  SpendSearch(self.text().size() + needle.size());
  const auto size = static_cast<int64_t>(self.string().num_characters);
  const auto bounded = [&](size_t i, int64_t otherwise) {
    if (bound.IsNoneOrAbsent(i)) return otherwise;
    int64_t index = ToIndex(bound[i], "slice index");
    if (index < 0) index = std::max<int64_t>(index < -size ? 0 : index + size, 0);
    return index;
  };
  const int64_t start = bounded(1, 0);
  const int64_t end = std::min(bounded(2, size), size);
  if (start > end) return -1;
  const std::string_view text = self.text();
  const size_t from = ByteOffset(text, static_cast<size_t>(start));
  const size_t to = ByteOffset(text, static_cast<size_t>(end));
  const std::string_view part = text.substr(from, to - from);
  const size_t found = BasicTextSearcher<kFromRight>(needle).Find(part);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(CountCodePoints(text.substr(0, from + found)));
}

template <bool kFromRight>
Value Find(const Value& self, Arguments& arguments) {
  return Value::Integer(Locate<kFromRight>(self, arguments));
}

template <bool kFromRight>
Value Index(const Value& self, Arguments& arguments) {
  const int64_t index = Locate<kFromRight>(self, arguments);
  if (index < 0) FailValue("substring not found");
  return Value::Integer(index);
}

Value Count(const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& needle = bound.Text(0);
  Value part = self;
  if (bound.Has(1)) part = GetSlice(self, bound[1], bound.Get(2, Value::None()), Value::None());
  if (needle.empty()) return Value::Integer(static_cast<int64_t>(part.string().num_characters) + 1);
  SpendSearch(part.text().size() + needle.size());
  int64_t parts = 0;
  ForEachPart<false>(part.text(), needle, -1, [&](std::string_view) { ++parts; });
  return Value::Integer(parts - 1);
}

template <bool (*Test)(char32_t)>
Value AllCharacters(const Value& self, Arguments& arguments) {
  ExpectNoArguments("isalpha", arguments);
  const std::string& text = self.text();
  SpendCharacters(text.size());
  for (size_t position = 0; position < text.size();) {
    if (!Test(NextCodePoint(text, position))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value IsAsciiText(const Value& self, Arguments& arguments) {
  ExpectNoArguments("isascii", arguments);
  return Value::Bool(self.string().is_ascii());
}

template <bool kUpper>
Value IsCase(const Value& self, Arguments& arguments) {
  ExpectNoArguments("isupper", arguments);
  return Value::Bool(HasCase(self.text(), kUpper));
}

template <bool kPrefix>
Value RemoveAffix(const Value& self, Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = bound.Text(0);
  std::string_view text = self.text();
  if (kPrefix && StartsWith(text, affix)) text.remove_prefix(affix.size());
  if (!kPrefix && EndsWith(text, affix)) text.remove_suffix(affix.size());
  return Like(self, std::string(text));
}

Value FillWithZeros(const Value& self, Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const std::string& text = self.text();
  const int64_t width = bound.Index(0, 0);
  const auto size = static_cast<int64_t>(self.string().num_characters);
  if (width <= size) return self;
  const int64_t missing = width - size;
  SpendText(text.size() + static_cast<size_t>(missing));
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return Like(self, text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') +
                        text.substr(sign));
}

template <char kAlign>
Value Justify(const Value& self, Arguments& arguments) {
  const Bound bound("center", arguments, {"width", "fillchar"}, 1);
  std::string fill = " ";
  if (bound.Has(1)) {
    fill = bound.Text(1);
    if (CountCodePoints(fill) != 1)
      FailType("The fill character must be exactly one character long");
  }
  return Like(self, PadText(self.text(), bound.Index(0, 0), kAlign, fill));
}

Value ExpandTabs(const Value& self, Arguments& arguments) {
  const Bound bound("expandtabs", arguments, {"tabsize"});
  const int64_t size = bound.Index(0, 8);
  SpendCharacters(self.text().size());
  std::string text;
  int64_t column = 0;
  for (size_t position = 0; position < self.text().size();) {
    const char32_t c = NextCodePoint(self.text(), position);
    if (c == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      SpendAppend(text.size(), static_cast<size_t>(blanks));
      text.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      AppendUtf8(text, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  SpendText(text.size());
  return Like(self, std::move(text));
}

Value EncodeText(const Value& self, Arguments& arguments) {
  const Bound bound("encode", arguments, {"encoding", "errors"});
  std::string encoding = bound.Has(0) ? Lower(bound.Text(0)) : "utf-8";
  std::replace(encoding.begin(), encoding.end(), '_', '-');
  if (encoding == "ascii" || encoding == "us-ascii") {
    if (!self.string().is_ascii())
      FailValue("'ascii' codec can't encode characters: ordinal not in range(128)");
  } else if (encoding != "utf-8" && encoding != "utf8") {
    Fail(FailureKind::kLookup,
         "unknown encoding: " + encoding + " (only utf-8 and ascii are supported)");
  }
  SpendText(self.text().size());
  return Value::Bytes(self.text());
}

Value StripTagsMethod(const Value& self, Arguments& arguments) {
  ExpectNoArguments("striptags", arguments);
  return Value::String(StripTags(self.text()));
}

Value UnescapeMethod(const Value& self, Arguments& arguments) {
  ExpectNoArguments("unescape", arguments);
  return Value::String(UnescapeHtml(self.text()));
}

const std::unordered_map<std::string_view, Method>& Methods() {
  static const auto& methods = *new std::unordered_map<std::string_view, Method>{
      {"upper", Converted<Upper>},
      {"lower", Converted<Lower>},
      {"title", Converted<Title>},
      {"capitalize", Converted<Capitalize>},
      {"swapcase", Converted<SwapCase>},
      {"strip", Stripped<Side::kBoth>},
      {"lstrip", Stripped<Side::kLeft>},
      {"rstrip", Stripped<Side::kRight>},
      {"startswith", Affix<true>},
      {"endswith", Affix<false>},
      {"replace", Replace},
      {"split", Split<false>},
      {"rsplit", Split<true>},
      {"splitlines", SplitIntoLines},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"join", Join},
      {"find", Find<false>},
      {"rfind", Find<true>},
      {"index", Index<false>},
      {"rindex", Index<true>},
      {"count", Count},
      {"isalpha", AllCharacters<IsAlpha>},
      {"isdigit", AllCharacters<IsDigit>},
      {"isdecimal", AllCharacters<IsDecimal>},
      {"isnumeric", AllCharacters<IsNumeric>},
      {"isalnum", AllCharacters<IsAlphanumeric>},
      {"isspace", AllCharacters<IsSpace>},
      {"isascii", IsAsciiText},
      {"isupper", IsCase<true>},
      {"islower", IsCase<false>},
      {"removeprefix", RemoveAffix<true>},
      {"removesuffix", RemoveAffix<false>},
      {"zfill", FillWithZeros},
      {"center", Justify<'c'>},
      {"ljust", Justify<'<'>},
      {"rjust", Justify<'>'>},
      {"expandtabs", ExpandTabs},
      {"encode", EncodeText},
      {"format", BraceFormat},
  };
  return methods;
}

Value Bind(const Value& self, std::string_view name, Method method) {
  return Value::FromObject(std::make_shared<Function>(
      std::string(name),
      [self, method](Interpreter&, Arguments& arguments) { return method(self, arguments); },
      "builtin_function_or_method", self.depth()));
}

}  // namespace

bool HasCase(std::string_view text, bool upper) {
  SpendCharacters(text.size());
  bool any = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, position);
    if (upper ? IsLower(c) || IsTitle(c) : IsUpper(c) || IsTitle(c)) return false;
    any = any || (upper ? IsUpper(c) : IsLower(c));
  }
  return any;
}

std::optional<Value> StringAttribute(const Value& value, std::string_view name) {
  const auto found = Methods().find(name);
  if (found != Methods().end()) return Bind(value, name, found->second);
  if (value.is_markup()) {
    if (name == "striptags") return Bind(value, name, StripTagsMethod);
    if (name == "unescape") return Bind(value, name, UnescapeMethod);
  }
  return std::nullopt;
}

}  // namespace sluice::jinja
