#include "base/suggest.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {

int EditDistance(std::string_view a, std::string_view b) {
  // rows[i % 3][j]: edit distance between the first i letters of a and the first j of b.
  std::vector<std::vector<int>> rows(3, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        row[j] = static_cast<int>(i + j);
        continue;
      }
      const auto& above = rows[(i + 2) % 3];
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], rows[(i + 1) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::vector<std::string> Nearest(std::string_view word, std::span<const std::string> known) {
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& candidate : known) {
    const int limit =
        std::max<int>(2, static_cast<int>(std::min(word.size(), candidate.size())) / 3);
    int distance = EditDistance(word, candidate);
    // A word that is contained in a candidate is most likely a shortened form of it.
    if (word.size() >= 4 && candidate.find(word) != std::string::npos)
      distance = std::min(distance, limit);
    if (distance <= limit) near.emplace_back(distance, candidate);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (size_t i = 0; i < near.size() && i < 2; ++i) result.push_back(near[i].second);
  return result;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> known) {
  const std::vector<std::string> nearest = Nearest(word, known);
  return nearest.empty() ? "" : fmt::format(", did you mean {}?", fmt::join(nearest, " or "));
}

}  // namespace sluice
