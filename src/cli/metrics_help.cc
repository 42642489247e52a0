#include "cli/metrics_help.h"

#include <map>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "engine/engine.h"
#include "server/metrics.h"

namespace sluice::cli {
namespace {

struct Family {
  std::string name, type, help, labels;
};

// The names of the labels in `{a="x",b="y"}`, le left out.
std::string LabelNames(const std::string& sample) {
  const size_t begin = sample.find('{');
  const size_t end = sample.find('}');
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string names;
  size_t place = begin + 1;
  while (place < end) {
    const size_t equals = sample.find('=', place);
    const size_t closing = sample.find('"', equals + 2);
    if (equals == std::string::npos || closing == std::string::npos) break;
    const std::string name = sample.substr(place, equals - place);
    if (name != "le") names += (names.empty() ? "`" : " `") + name + "`";
    place = closing + 2;
  }
  return names;
}

std::vector<Family> Families(const std::string& exposition) {
  std::vector<Family> families;
  std::istringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (line.starts_with("# HELP ")) {
      words >> hash >> keyword >> name;
      std::string help;
      std::getline(words >> std::ws, help);
      families.push_back({name, "", help, ""});
    } else if (line.starts_with("# TYPE ") && !families.empty()) {
      words >> hash >> keyword >> name >> families.back().type;
    } else if (!families.empty() && !line.starts_with("#") && families.back().labels.empty()) {
      families.back().labels = LabelNames(line);
    }
  }
  return families;
}

}  // namespace

std::string MetricsMarkdown() {
  Metrics metrics;
  EngineInfo info;
  info.max_model_len = 1;
  metrics.SetModel("MODEL", info);
  metrics.OnHttp({}, "none");
  std::string text =
      "# Metrics\n\n"
      "Made by `sluice help --metrics` from what `/metrics` itself says; `make docs` writes this "
      "page. The names are those "
      "of vLLM; where vLLM renamed one, the old name stands beside the new one.\n\n"
      "| name | type | labels | what it says |\n|---|---|---|---|\n";
  for (const Family& family : Families(metrics.Text(/*idle=*/true))) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", family.name, family.type, family.labels,
                        family.help);
  }
  return text;
}

}  // namespace sluice::cli
