// The filters and tests of the language, found by name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "chat/jinja/value.h"

namespace sluice::jinja {

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);
// Fails (kRuntime) if no filter or test is named `name`.
Value CallFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                 Arguments& arguments);
bool CallTest(std::string_view name, const Value& input, Arguments& arguments);

using Filter = Value (*)(Interpreter& interpreter, const Value& input, Arguments& arguments);
using FilterTable = std::unordered_map<std::string_view, Filter>;
void AddTextFilters(FilterTable& table);
void AddListFilters(FilterTable& table);
void AddSelectionFilters(FilterTable& table);
void AddValueFilters(FilterTable& table);

// Returns item[a][b] for the attribute "a.b", where digits are indices. A missing item becomes
// `otherwise`, unless that is none.
using Getter = std::function<Value(const Value&)>;
Getter MakeGetter(const Value& attribute, const Value& otherwise, bool ignore_case);

}  // namespace sluice::jinja
