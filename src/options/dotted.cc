#include "options/dotted.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sluice::options {
namespace {

void Set(json::Value& object, std::string_view path, json::Value value) {
  const size_t dot = path.find('.');
  std::string_view key = path.substr(0, dot);
  if (dot != std::string_view::npos) {
    const json::Value* old = object.Find(key);
    json::Value inner =
        old != nullptr && old->is_object() ? *old : json::Value(json::Value::Object{});
    Set(inner, path.substr(dot + 1), std::move(value));
    object.Set(key, std::move(inner));
    return;
  }
  if (!key.ends_with('+')) {
    object.Set(key, std::move(value));
    return;
  }
  key.remove_suffix(1);
  const json::Value* old = object.Find(key);
  json::Value::Array items =
      old != nullptr && old->is_array() ? old->as_array() : json::Value::Array{};
  if (value.is_array()) {
    items.insert(items.end(), value.as_array().begin(), value.as_array().end());
  } else {
    items.push_back(std::move(value));
  }
  object.Set(key, json::Value(std::move(items)));
}

}  // namespace

Status SetDotted(json::Value& object, std::string_view path, json::Value value) {
  if (std::count(path.begin(), path.end(), '.') >= kMaxDottedParts) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a key with dots has at most {} parts", kMaxDottedParts));
  }
  Set(object, path, std::move(value));
  return {};
}

}  // namespace sluice::options
