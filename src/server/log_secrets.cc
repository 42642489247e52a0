#include "server/log_secrets.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/ascii.h"
#include "server/http/http_types.h"

namespace sluice {
namespace {

constexpr std::string_view kHidden = "***";

bool HoldsKey(std::string_view text, const ApiKeys& keys) {
  return keys.FoundIn(PercentDecode(text));
}

bool IsSecretName(std::string_view name) {
  const std::string lower = AsciiLower(PercentDecode(name));
  for (const std::string_view word :
       {"key", "secret", "passw", "auth", "credential", "signature"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return lower.ends_with("token");
}

}  // namespace

std::string WithoutSecrets(std::string_view target, const ApiKeys& keys) {
  const size_t question = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, question);
  std::string shown(path);
  if (path.size() > 1 && HoldsKey(path, keys)) shown = fmt::format("/{}", kHidden);
  for (size_t begin = question; begin < target.size();) {
    shown.push_back(target[begin++]);  // copies '?' or '&'
    const size_t end = std::min(target.find('&', begin), target.size());
    const std::string_view pair = target.substr(begin, end - begin);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || HoldsKey(pair.substr(0, equals), keys)) {
      shown += HoldsKey(pair, keys) ? kHidden : pair;
    } else {
      const std::string_view name = pair.substr(0, equals), value = pair.substr(equals + 1);
      shown += pair.substr(0, equals + 1);
      shown += IsSecretName(name) || HoldsKey(value, keys) ? kHidden : value;
    }
    begin = end;
  }
  // A key that contains '?', '&' or '=' is only found in the whole target.
  return HoldsKey(shown, keys) ? fmt::format("/{}", kHidden) : shown;
}

}  // namespace sluice
