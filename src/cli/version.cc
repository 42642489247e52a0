#include "cli/version.h"

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command.h"
#include "kernels/dispatch.h"
#include "models/registry.h"

namespace sluice::cli {

std::string Version() {
  return SLUICE_VERSION;
}
std::string Commit() {
  return SLUICE_COMMIT;
}
std::string BuildType() {
  return SLUICE_BUILD_TYPE;
}

Result<int> RunVersion(const options::Settings& settings) {
  std::vector<std::string> isas;
  for (kernels::Isa isa : kernels::AvailableIsas()) isas.emplace_back(kernels::IsaName(isa));
  const std::vector<std::string> architectures = SupportedArchitectures();
  if (settings.Flag("json")) {
    const auto strings = [](const std::vector<std::string>& from) {
      json::Value::Array array;
      for (const std::string& text : from) array.emplace_back(text);
      return json::Value(std::move(array));
    };
    json::Value object{json::Value::Object{}};
    object.Set("version", json::Value(Version()));
    object.Set("commit", json::Value(Commit()));
    object.Set("build", json::Value(BuildType()));
    object.Set("cpu", strings(isas));
    object.Set("architectures", strings(architectures));
    fmt::print("{}\n", json::Write(object));
    return 0;
  }
  fmt::print("sluice {} (commit {}, {})\n cpu:", Version(), Commit(), BuildType());
  for (const std::string& isa : isas) fmt::print(" {}", isa);
  fmt::print("\n models:");
  for (const std::string& architecture : architectures) fmt::print(" {}", architecture);
  fmt::print("\n");
  return 0;
}

}  // namespace sluice::cli
