#include "server/api/guard/cors.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"

namespace sluice {
namespace {

bool Has(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

Cors::Cors(const ServerConfig& config)
    : origins_(config.allowed_origins),
      methods_(config.allowed_methods),
      all_origins_(Has(config.allowed_origins, "*")),
      all_headers_(Has(config.allowed_headers, "*")),
      credentials_(config.allow_credentials) {
  if (Has(methods_, "*"))
    methods_ = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY"};
  for (const std::string& header : config.allowed_headers) headers_.push_back(AsciiLower(header));
}

bool Cors::IsAllowed(const std::string& origin) const {
  return all_origins_ || Has(origins_, origin);
}

bool Cors::IsPreflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.Header("origin") != nullptr &&
         request.Header("access-control-request-method") != nullptr;
}

std::optional<HttpResponse> Cors::Preflight(const HttpRequest& request) const {
  if (!IsPreflight(request)) return std::nullopt;
  const std::string* origin = request.Header("origin");
  const std::string* method = request.Header("access-control-request-method");
  const std::string* headers = request.Header("access-control-request-headers");
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  std::vector<std::string> failures;
  response.headers.push_back(
      {"vary",
       "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
       "Access-Control-Request-Private-Network"});
  response.headers.push_back(
      {"access-control-allow-methods", fmt::format("{}", fmt::join(methods_, ", "))});
  response.headers.push_back({"access-control-max-age", "600"});
  if (credentials_) response.headers.push_back({"access-control-allow-credentials", "true"});
  if (IsAllowed(*origin)) {
    response.headers.push_back(
        {"access-control-allow-origin", all_origins_ && !credentials_ ? "*" : *origin});
  } else {
    failures.push_back("origin");
  }
  if (!Has(methods_, *method)) failures.push_back("method");
  if (headers != nullptr) {
    bool allowed = true;
    size_t begin = 0;
    while (!all_headers_ && begin <= headers->size()) {
      const size_t end = std::min(headers->find(',', begin), headers->size());
      const size_t first = headers->find_first_not_of(" \t", begin);
      if (first < end) {
        std::string name = AsciiLower(std::string_view(*headers).substr(first, end - first));
        name.resize(name.find_last_not_of(" \t") + 1);
        static constexpr std::string_view kSafe[] = {"accept", "accept-language",
                                                     "content-language", "content-type"};
        allowed = allowed && (Has(headers_, name) || std::find(std::begin(kSafe), std::end(kSafe),
                                                               name) != std::end(kSafe));
      }
      begin = end + 1;
    }
    if (!allowed) failures.push_back("headers");
    response.headers.push_back(
        {"access-control-allow-headers",
         all_headers_ ? *headers : fmt::format("{}", fmt::join(headers_, ", "))});
  }
  if (failures.empty()) {
    response.body = "OK";
  } else {
    response.status = 400;
    response.body = fmt::format("Disallowed CORS {}", fmt::join(failures, ", "));
  }
  return response;
}

std::vector<HttpHeader> Cors::Headers(const HttpRequest& request) const {
  std::vector<HttpHeader> result;
  const std::string* origin = request.Header("origin");
  const bool named = !all_origins_ || credentials_;  // whether the response names the request's
                                                     // origin
  if (origin != nullptr) {
    if (credentials_) result.push_back({"access-control-allow-credentials", "true"});
    if (IsAllowed(*origin))
      result.push_back({"access-control-allow-origin", named ? *origin : "*"});
  }
  if (named) result.push_back({"vary", "Origin"});
  return result;
}

}  // namespace sluice
