#include "server/api/context/openapi.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/html_text.h"
#include "base/json.h"

namespace sluice {
namespace {

json::Value Object(std::initializer_list<std::pair<std::string, json::Value>> members) {
  json::Value result{json::Value::Object{}};
  for (const auto& [key, value] : members) result.Set(key, value);
  return result;
}

json::Value Reference(std::string_view schema) {
  return Object({{"$ref", fmt::format("#/components/schemas/{}", schema)}});
}

// Returns {"<media type>": {"schema": ...}}.
json::Value Content(std::string_view media_type, json::Value schema) {
  return Object({{std::string(media_type), Object({{"schema", std::move(schema)}})}});
}

json::Value Answer(std::string_view schema) {
  json::Value answer = Object({{"description", "Success"}});
  const json::Value text = Object({{"type", "string"}});
  if (schema == "text") {
    answer.Set("content", Content("text/plain", text));
  } else if (schema == "html") {
    answer.Set("content", Content("text/html", text));
  } else {
    json::Value content = Content(
        "application/json", schema.empty() ? Object({{"type", "object"}}) : Reference(schema));
    if (schema == "Completion" || schema == "ChatCompletion" || schema == "AnthropicMessage" ||
        schema == "Response")
      content.Set("text/event-stream", Object({{"schema", text}}));
    answer.Set("content", std::move(content));
  }
  return answer;
}

json::Value Operation(const Route& route, std::string_view method) {
  std::string id = AsciiLower(method);
  for (const char c : route.path)
    id.push_back((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_');
  json::Value operation = Object({{"summary", std::string(route.summary)}, {"operationId", id}});
  if (const size_t brace = route.path.find('{'); brace != std::string_view::npos) {
    const std::string name(route.path.substr(brace + 1, route.path.find('}') - brace - 1));
    json::Value::Array parameters;
    parameters.push_back(Object({{"name", name},
                                 {"in", "path"},
                                 {"required", true},
                                 {"schema", Object({{"type", "string"}, {"minLength", 1}})}}));
    operation.Set("parameters", json::Value(std::move(parameters)));
  }
  if (!route.request.empty()) {
    operation.Set("requestBody",
                  Object({{"required", true},
                          {"content", Content("application/json", Reference(route.request))}}));
  }
  json::Value responses = Object({{"200", Answer(route.response)}});
  json::Value error = Object({{"description", "What is wrong"}});
  json::Value shapes = Content("application/json", Reference("Error"));
  shapes.Set("text/plain", Object({{"schema", Object({{"type", "string"}})}}));
  error.Set("content", std::move(shapes));
  responses.Set("default", std::move(error));
  operation.Set("responses", std::move(responses));
  return operation;
}

}  // namespace

std::string OpenApiDocument(const std::vector<const Route*>& routes, const ServerConfig& config) {
  json::Value paths{json::Value::Object{}};
  for (const Route* route : routes) {
    if (route->summary.empty()) continue;
    json::Value item{json::Value::Object{}};
    for (const std::string_view method : route->methods)
      item.Set(AsciiLower(method), Operation(*route, method));
    paths.Set(std::string(route->path), std::move(item));
  }
  json::Value document = Object({
      {"openapi", "3.1.0"},
      {"info", Object({{"title", "sluice"},
                       {"version", config.version.empty() ? std::string("0") : config.version}})},
  });
  if (!config.root_path.empty()) {
    json::Value::Array servers;
    servers.push_back(Object({{"url", config.root_path}}));
    document.Set("servers", json::Value(std::move(servers)));
  }
  document.Set("paths", std::move(paths));
  json::Value components{json::Value::Object{}};
  if (Result<json::Value> schemas = json::Parse(OpenApiSchemas()))
    components.Set("schemas", *std::move(schemas));
  if (config.needs_key()) {
    components.Set("securitySchemes",
                   Object({{"key", Object({{"type", "http"}, {"scheme", "bearer"}})}}));
  }
  document.Set("components", std::move(components));
  return json::Write(document);
}

std::string DocsPage(const std::vector<const Route*>& routes, const ServerConfig& config) {
  // Everything that the page loads is below /docs and is named relative to the page, because a
  // proxy may prefix the path.
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\"><title>sluice API</title>\n"
      "<link rel=\"icon\" href=\"docs/icon.svg\" type=\"image/svg+xml\">\n"
      "<link rel=\"stylesheet\" href=\"docs/base.css\"><link rel=\"stylesheet\" "
      "href=\"docs/docs.css\">\n"
      "<script src=\"docs/theme.js\"></script><script type=\"module\" "
      "src=\"docs/docs.js\"></script></head>\n<body><main><h1>sluice ";
  AppendHtmlText(page, config.version);
  page +=
      "</h1>\n<p class=\"lead\">The fields of bodies and answers are described in <a "
      "href=\"openapi.json\">openapi.json</a>.</p>\n";
  if (config.needs_key()) {
    page +=
        "<label class=\"field key\"><span>API key, for the requests of this page</span>"
        "<input id=\"key\" type=\"password\" autocomplete=\"off\"></label>\n";
  } else {
    page += "<input id=\"key\" type=\"hidden\">\n";
  }
  for (const Route* route : routes) {
    if (route->summary.empty()) continue;
    const auto attribute = [&](std::string_view name, std::string_view value) {
      page += fmt::format(" {}=\"", name);
      AppendHtmlText(page, value);
      page.push_back('"');
    };
    page += "<details class=\"route\"";
    attribute("data-path", route->path);
    attribute("data-methods", fmt::format("{}", fmt::join(route->methods, " ")));
    page += "><summary><span class=\"method\">";
    AppendHtmlText(page, route->methods.front());
    page += "</span><code>";
    AppendHtmlText(page, route->path);
    page += "</code><span class=\"about\">";
    AppendHtmlText(page, route->summary);
    page += "</span></summary></details>\n";
  }
  return page + "</main></body></html>\n";
}

}  // namespace sluice
