#include "server/api/common/web_answer.h"

#include <utility>

namespace sluice {
namespace {

constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

void AddPageHeaders(HttpResponse& response) {
  response.headers.push_back({"content-security-policy", kPagePolicy});
  response.headers.push_back({"x-content-type-options", "nosniff"});
  response.headers.push_back({"referrer-policy", "no-referrer"});
  response.headers.push_back({"cross-origin-resource-policy", "same-origin"});
}

// Whether the client already has the file with this ETag. ETags do not contain commas or inner
// quotes.
bool ClientHas(const HttpRequest& request, std::string_view etag) {
  const std::string* tags = request.Header("if-none-match");
  return tags != nullptr && (*tags == "*" || tags->find(etag) != std::string::npos);
}

}  // namespace

HttpResponse HtmlResponse(std::string page) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = std::move(page);
  AddPageHeaders(response);
  return response;
}

HttpResponse FileResponse(const HttpRequest& request, const WebFile& file) {
  HttpResponse response;
  AddPageHeaders(response);
  response.headers.push_back({"etag", std::string(file.etag)});
  response.headers.push_back({"cache-control", "no-cache"});
  if (ClientHas(request, file.etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  response.content_type = file.content_type;
  response.body = file.content;
  return response;
}

}  // namespace sluice
