#include "server/api/common/query.h"

#include <algorithm>

#include "base/json.h"
#include "server/api/common/field_reader.h"

namespace sluice {

std::vector<std::string> QueryValues(const HttpRequest& request, std::string_view name) {
  std::vector<std::string> values;
  std::string_view query = request.query;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (PercentDecode(pair.substr(0, equals)) == name)
      values.push_back(PercentDecode(pair.substr(std::min(equals + 1, pair.size()))));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return values;
}

std::optional<std::string> QueryValue(const HttpRequest& request, std::string_view name) {
  std::vector<std::string> values = QueryValues(request, name);
  return values.empty() ? std::nullopt : std::optional(std::move(values.front()));
}

ApiResult<std::string> QueryChoice(const HttpRequest& request, std::string_view name,
                                   std::initializer_list<std::string_view> choices) {
  json::Value query{json::Value::Object{}};
  if (const std::optional<std::string> value = QueryValue(request, name)) query.Set(name, *value);
  std::vector<FieldError> errors;
  std::string choice(*choices.begin());
  FieldReader(query, "query", &errors)
      .Read(name, choice, {.one_of = {choices.begin(), choices.size()}});
  if (!errors.empty()) return ValidationFailed(errors);
  return choice;
}

}  // namespace sluice
