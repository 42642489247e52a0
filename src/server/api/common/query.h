// Reads the query parameters of a request.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/common/api_error.h"
#include "server/http/http_types.h"

namespace sluice {

// Returns the first value of `name`, decoded.
std::optional<std::string> QueryValue(const HttpRequest& request, std::string_view name);

// Returns all values of `name`, decoded.
std::vector<std::string> QueryValues(const HttpRequest& request, std::string_view name);

// Like QueryValue, but returns the first of `choices` if the parameter is absent. 400 for a value
// that is not one of `choices`.
ApiResult<std::string> QueryChoice(const HttpRequest& request, std::string_view name,
                                   std::initializer_list<std::string_view> choices);

}  // namespace sluice
