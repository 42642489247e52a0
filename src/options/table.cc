#include "base/check.h"
#include "options/option.h"
#include "options/rows.h"

namespace sluice::options {

std::span<const Option> Table() {
  static const std::vector<Option> table = [] {
    std::vector<Option> rows;
    for (const auto& part :
         {ModelRows(), EngineRows(), ServerRows(), ClientRows(), BenchServeRows(), EvalRows(),
          QuantizeRows(), SelftestRows(), ParallelRows(), CompilerRows(), LoadingRows(),
          MediaRows(), FrontendRows(), TrtllmRows(), RetiredRows()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
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

}  // namespace sluice::options
