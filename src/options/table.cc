#include <algorithm>
#include <map>

#include "base/check.h"
#include "options/dialect_table.h"
#include "options/option.h"
#include "options/rows.h"

namespace sluice::options {

std::span<const Option> Table() {
  static const std::vector<Option> table = [] {
    std::vector<Option> rows;
    AddModelRows(rows);
    AddEngineRows(rows);
    AddRecordingRows(rows);
    AddShadowRows(rows);
    AddServerRows(rows);
    AddMediaRows(rows);
    AddAdapterRows(rows);
    AddParallelRows(rows);
    AddDistributedRows(rows);
    AddClientRows(rows);
    AddBenchRows(rows);
    AddEvalRows(rows);
    AddQuantizeRows(rows);
    AddSelftestRows(rows);
    AddSimulationRows(rows);
    const auto& others = Dialects().options;
    rows.insert(rows.end(), others.begin(), others.end());
    // The command `run` is `chat` with a model, to whose server other clients may connect.
    for (Option& row : rows) {
      if ((row.commands & kChat) != 0) row.commands |= kRun;
    }
    // Groups are in the order of their first rows.
    std::map<std::string_view, size_t> places;
    for (const Option& row : rows) places.emplace(row.group, places.size());
    std::stable_sort(rows.begin(), rows.end(), [&](const Option& a, const Option& b) {
      return places[a.group] < places[b.group];
    });
    return rows;
  }();
  return table;
}

const Option& Find(std::string_view name) {
  for (const Option& option : Table()) {
    if (option.name == name) return option;
  }
  CHECK(false, "no option is called {}", name);
  __builtin_unreachable();
}

std::string_view DefaultOf(const Option& option, Dialect dialect) {
  if (dialect == Dialect::kVllm && !option.vllm_default.empty()) return option.vllm_default;
  if (dialect == Dialect::kTrtllm && !option.trtllm_default.empty()) return option.trtllm_default;
  return option.default_value;
}

std::string_view TypeName(Type type) {
  switch (type) {
    case Type::kFlag: return "flag";
    case Type::kString: return "text";
    case Type::kStrings: return "list";
    case Type::kInteger: return "integer";
    case Type::kSize: return "bytes";
    case Type::kNumber: return "number";
    case Type::kChoice: return "choice";
    case Type::kJson: return "JSON";
  }
  return "";
}

std::string_view EffectName(Effect effect) {
  switch (effect) {
    case Effect::kActs: return "acts";
    case Effect::kMapped: return "mapped";
    case Effect::kNoEffect: return "no effect";
    case Effect::kRefused: return "refused";
  }
  return "";
}

std::span<const std::string_view> CommandNames() {
  static constexpr std::string_view kNames[] = {"serve",
                                                "chat",
                                                "complete",
                                                "inspect",
                                                "doctor",
                                                "bench latency",
                                                "bench throughput",
                                                "tokenize",
                                                "render",
                                                "version",
                                                "bench serve",
                                                "bench sweep",
                                                "run-batch",
                                                "collect-env",
                                                "explain-options",
                                                "eval",
                                                "recipe",
                                                "quantize",
                                                "diff",
                                                "selftest",
                                                "kernel-bench",
                                                "parse",
                                                "pull",
                                                "list",
                                                "rm",
                                                "completion",
                                                "run",
                                                "ps",
                                                "replay",
                                                "verify",
                                                "receipt-key",
                                                "plan",
                                                "fit",
                                                "shadow"};
  return kNames;
}

std::string VariableOf(const Option& option) {
  std::string name = "SLUICE_";
  for (char c : option.name)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

}  // namespace sluice::options
