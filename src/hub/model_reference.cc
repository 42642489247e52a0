#include "hub/model_reference.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kCommitDigits = 40;

bool IsHubIdPart(std::string_view part) {
  constexpr size_t kMaxPart = 96;
  if (part.empty() || part.size() > kMaxPart) return false;
  if (part.front() == '-' || part.front() == '.' || part.back() == '-' || part.back() == '.')
    return false;
  if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos)
    return false;
  return std::all_of(part.begin(), part.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

// Returns the non-empty parts between slashes.
std::vector<std::string_view> PathParts(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0) parts.push_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

}  // namespace

bool IsHubId(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return IsHubIdPart(text);
  return IsHubIdPart(text.substr(0, slash)) && IsHubIdPart(text.substr(slash + 1));
}

bool IsCommit(std::string_view text) {
  return text.size() == kCommitDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A branch or tag may contain slashes, but must not lead outside the refs folder.
bool IsRevisionName(std::string_view text) {
  if (text.empty() || text.size() > 255 || text.front() == '/' || text.back() == '/') return false;
  if (text.find("..") != std::string_view::npos || text.find("//") != std::string_view::npos)
    return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
           c == '/' || c == '+';
  });
}

std::optional<ModelReference> ParseModelAddress(std::string_view text, std::string_view endpoint) {
  text = text.substr(0, text.find_first_of("?#"));
  std::string_view path;
  const std::string own = std::string(endpoint) + "/";
  for (const std::string_view prefix :
       {std::string_view(own), std::string_view("https://huggingface.co/"),
        std::string_view("http://huggingface.co/"), std::string_view("https://www.huggingface.co/"),
        std::string_view("https://hf.co/"), std::string_view("huggingface.co/"),
        std::string_view("hf.co/"), std::string_view("hf://models/"), std::string_view("hf://")}) {
    if (!text.starts_with(prefix)) continue;
    path = text.substr(prefix.size());
    break;
  }
  const std::vector<std::string_view> parts = PathParts(path);
  if (parts.empty()) return std::nullopt;
  const auto is_view = [&](size_t place) {
    return place < parts.size() && (parts[place] == "tree" || parts[place] == "blob" ||
                                    parts[place] == "resolve" || parts[place] == "commit");
  };
  const size_t id_parts = parts.size() == 1 || is_view(1) ? 1 : 2;
  ModelReference reference{.id = std::string(parts[0])};
  if (id_parts == 2) reference.id += "/" + std::string(parts[1]);
  if (!IsHubId(reference.id)) return std::nullopt;
  if (is_view(id_parts) && id_parts + 1 < parts.size()) {
    reference.revision = parts[id_parts + 1];
    // In the URL a slash in a branch's name is written as %2F. The rest of the path is ignored.
    for (size_t place = reference.revision.find("%2F"); place != std::string::npos;
         place = reference.revision.find("%2F")) {
      reference.revision.replace(place, 3, "/");
    }
  }
  return reference;
}

}  // namespace sluice
