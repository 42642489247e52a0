#include "chat/jinja/filters.h"

#include <charconv>
#include <memory>

#include "chat/jinja/operators.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

template <const char* kName>
Value Refused(Interpreter&, const Value&, Arguments&) {
  Fail(FailureKind::kRuntime,
       std::string("the filter '") + kName + "' is not supported in chat templates");
}
constexpr char kPprint[] = "pprint";
constexpr char kRandom[] = "random";
constexpr char kUrlize[] = "urlize";
constexpr char kWordwrap[] = "wordwrap";

const FilterTable& Filters() {
  static const FilterTable& table = *[] {
    auto* filters = new FilterTable{{"pprint", Refused<kPprint>},
                                    {"random", Refused<kRandom>},
                                    {"urlize", Refused<kUrlize>},
                                    {"wordwrap", Refused<kWordwrap>}};
    AddTextFilters(*filters);
    AddListFilters(*filters);
    AddSelectionFilters(*filters);
    AddValueFilters(*filters);
    return filters;
  }();
  return table;
}

}  // namespace

bool IsFilter(std::string_view name) {
  return Filters().contains(name);
}

Value CallFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                 Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end())
    Fail(FailureKind::kRuntime, "No filter named '" + std::string(name) + "' found.");
  return found->second(interpreter, input, arguments);
}

Getter MakeGetter(const Value& attribute, const Value& otherwise, bool ignore_case) {
  std::vector<Value> parts;
  if (attribute.is_string()) {
    std::string_view rest = attribute.text();
    while (true) {
      const size_t dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      int64_t index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool is_index = !part.empty() && part[0] != '-' && error == std::errc() &&
                            end == part.data() + part.size();
      parts.push_back(is_index ? Value::Integer(index) : Value::String(std::string(part)));
      if (dot == std::string_view::npos) break;
      rest.remove_prefix(dot + 1);
    }
  } else if (!attribute.is_missing() && !attribute.is_none()) {
    parts.push_back(attribute);
  }
  return [parts = std::move(parts), otherwise, ignore_case](const Value& input) {
    Value item = input;
    for (const Value& part : parts) {
      Spend(1);
      item = GetItem(item, part);
      if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
    }
    if (ignore_case && item.is_string()) {
      item = Value::String(Lower(item.text()));
    }
    return item;
  };
}

}  // namespace sluice::jinja
