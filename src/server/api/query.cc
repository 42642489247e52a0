#include "server/api/query.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/field_reader.h"
#include "server/api/python_text.h"

namespace sluice {

std::optional<std::string> QueryValue(const HttpRequest& request, std::string_view name) {
  std::string_view query = request.query;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (PercentDecode(pair.substr(0, equals)) == name)
      return PercentDecode(pair.substr(std::min(equals + 1, pair.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return std::nullopt;
}

ApiResult<std::string> QueryChoice(const HttpRequest& request, std::string_view name,
                                   std::initializer_list<std::string_view> choices,
                                   std::string_view expected) {
  const std::optional<std::string> value = QueryValue(request, name);
  if (!value) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return *value;
  const json::Value none{json::Value::Object{}};
  std::vector<FieldError> errors;
  FieldReader reader(none, "query", &errors);
  reader.Add("literal_error", name, fmt::format("Input should be {}", expected),
             json::Value(*value), fmt::format("{{'expected': {}}}", PythonRepr(expected)));
  return ValidationFailed(errors);
}

}  // namespace sluice
