#include "cli/check_settings.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

using options::Settings;

// vLLM's names of quantization schemes, including schemes that this program does not support.
constexpr std::string_view kQuantizations =
    "awq|auto_awq|fp8|fbgemm_fp8|fp_quant|modelopt|modelopt_fp4|modelopt_mxfp8|"
    "modelopt_mixed|auto_gptq|gptq|gptq_marlin|awq_marlin|humming|compressed-tensors|"
    "experts_int8|quark|moe_wna16|torchao|inc|mxfp4|gpt_oss_mxfp4|deepseek_v4_fp8|online|"
    "fp8_per_tensor|fp8_per_channel|fp8_per_block|int8_per_channel_weight_only|nvfp4_per_token|"
    "int8|mxfp8|nvfp4|bitsandbytes|gguf|ptpc_fp8|rtn|petit_nvfp4|"
    "cpu_awq|auto-round";

tl::unexpected<Error> Contradiction(std::string message, std::string_view param) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), std::string(param));
}

Status CheckQuantization(const Settings& settings) {
  const auto name = settings.Text("quantization");
  if (!name) return {};
  const std::vector<std::string_view> known = options::Split(kQuantizations, '|');
  if (std::find(known.begin(), known.end(), *name) != known.end()) return {};
  return Contradiction(
      fmt::format("--quantization: expected one of {}, found '{}'", fmt::join(known, ", "), *name),
      "quantization");
}

Status CheckEffortMap(const Settings& settings) {
  constexpr std::string_view kName = "reasoning-effort-map";
  constexpr std::string_view kEfforts = "none|minimal|low|medium|high|xhigh|max";
  const auto text = settings.Text(kName);
  if (!text) return {};
  ASSIGN_OR_RETURN(const json::Value map, json::Parse(*text));
  const std::vector<std::string_view> known = options::Split(kEfforts, '|');
  for (const auto& [effort, word] : map.as_object()) {
    if (std::find(known.begin(), known.end(), effort) == known.end()) {
      return Contradiction(fmt::format("--{}: expected efforts of {}, found '{}'", kName,
                                       fmt::join(known, ", "), effort),
                           kName);
    }
    if (!word.is_string()) {
      return Contradiction(fmt::format("--{}: {}: expected a text, the effort that the chat "
                                       "template gets, found {}",
                                       kName, effort, json::Write(word)),
                           kName);
    }
  }
  return {};
}

Status CheckModel(const Settings& settings) {
  // With --url, two positional arguments are allowed: a text, and the model's name on the server.
  if (settings.dialect() != options::Dialect::kSluice || settings.positionals().empty() ||
      !settings.Given("model") || settings.Given("url")) {
    return {};
  }
  for (const options::Assignment* given : settings.given()) {
    // A model in the configuration file is only a default, so it does not count.
    if (given->option->name != "model" || given->source != options::Source::kFlag ||
        given->words[0] == settings.positionals()[0]) {
      continue;
    }
    return Contradiction(fmt::format("the positional argument names the model '{}', and --model "
                                     "names '{}': give only one of them",
                                     settings.positionals()[0], given->words[0]),
                         "model");
  }
  return {};
}

Status CheckCaptureSizes(const Settings& settings) {
  const auto compilation = settings.Text("compilation-config");
  if (!compilation) return {};
  const auto object = json::Parse(*compilation);
  if (!object) return {};
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"cudagraph-capture-sizes", "cudagraph_capture_sizes"},
      {"max-cudagraph-capture-size", "max_cudagraph_capture_size"},
  };
  for (const auto& [name, key] : kPairs) {
    if (settings.Given(name) && object->Find(key) != nullptr) {
      return Contradiction(fmt::format("--{} and --compilation-config {} are the same setting: "
                                       "give one of them",
                                       name, key),
                           name);
    }
  }
  return {};
}

Status CheckTls(const Settings& settings) {
  if (!settings.Given("ssl-certfile")) {
    for (const std::string_view name :
         {"ssl-keyfile", "ssl-ca-certs", "ssl-ciphers", "enable-ssl-refresh"}) {
      if (settings.Given(name)) {
        return Contradiction(
            fmt::format("--{} requires --ssl-certfile, the server's certificate", name), name);
      }
    }
  }
  if (settings.Integer("ssl-cert-reqs").value_or(0) != 0 && !settings.Given("ssl-ca-certs")) {
    return Contradiction(
        "--ssl-cert-reqs requires --ssl-ca-certs: name the authorities whose certificates are "
        "accepted",
        "ssl-cert-reqs");
  }
  return {};
}

// Checks which engines of --data-parallel-size this server runs.
Status CheckEngines(const Settings& settings) {
  const int64_t size = settings.Integer("data-parallel-size").value_or(1);
  const auto rank = settings.Integer("data-parallel-rank");
  const auto local = settings.Integer("data-parallel-size-local");
  const int64_t first = settings.Integer("data-parallel-start-rank").value_or(0);
  const bool is_hybrid = settings.Flag("data-parallel-hybrid-lb");
  const char* const kSize = "data-parallel-size";
  if (settings.Flag("data-parallel-external-lb") && !rank) {
    return Contradiction(
        "--data-parallel-external-lb requires --data-parallel-rank: which engine this server is",
        "data-parallel-external-lb");
  }
  if (rank && (is_hybrid || settings.Given("data-parallel-start-rank") || local.value_or(1) != 1)) {
    return Contradiction(
        "--data-parallel-rank makes this server one engine: omit --data-parallel-hybrid-lb, "
        "--data-parallel-start-rank and --data-parallel-size-local",
        "data-parallel-rank");
  }
  if (rank && *rank >= size) {
    return Contradiction(fmt::format("--data-parallel-rank {}: expected less than "
                                     "--data-parallel-size, which is {}",
                                     *rank, size),
                         "data-parallel-rank");
  }
  if (rank) return {};
  if (is_hybrid && !local) {
    return Contradiction(
        "--data-parallel-hybrid-lb requires --data-parallel-size-local: how many engines this "
        "server has",
        "data-parallel-hybrid-lb");
  }
  if (is_hybrid && first + *local > size) {
    return Contradiction(
        fmt::format("this server has engines {} to {}, but --data-parallel-size is {}", first,
                    first + *local - 1, size),
        kSize);
  }
  if (!is_hybrid && (local.value_or(size) != size || first != 0)) {
    return Contradiction(
        fmt::format("--data-parallel-size {} with {} engines on this machine: those on other "
                    "machines are separate servers; use --data-parallel-hybrid-lb and a load "
                    "balancer in front of all servers",
                    size, local.value_or(size)),
        kSize);
  }
  return {};
}

Status CheckArithmetic(const Settings& settings) {
  if (settings.TextOr("arithmetic") != "portable") return {};
  const std::string isa = settings.TextOr("cpu-isa", "auto");
  if (isa != "auto" && isa != "portable") {
    return Contradiction(
        fmt::format("--arithmetic portable and --cpu-isa {} contradict each other: the portable "
                    "kernels choose their instructions themselves; give only one of the options",
                    isa),
        "arithmetic");
  }
  const std::string device = settings.TextOr("device", "cpu");
  if (device != "cpu" && device != "auto") {
    return Contradiction(
        fmt::format("--arithmetic portable works only on the CPU, and --device is {}: "
                    "omit one of them",
                    device),
        "arithmetic");
  }
  return {};
}

}  // namespace

Status CheckSettings(const Settings& settings) {
  RETURN_IF_ERROR(CheckEffortMap(settings));
  RETURN_IF_ERROR(CheckModel(settings));
  RETURN_IF_ERROR(CheckQuantization(settings));
  RETURN_IF_ERROR(CheckCaptureSizes(settings));
  RETURN_IF_ERROR(CheckTls(settings));
  RETURN_IF_ERROR(CheckEngines(settings));
  RETURN_IF_ERROR(CheckArithmetic(settings));
  if (settings.Flag("enable-auto-tool-choice") && !settings.Given("tool-call-parser")) {
    return Contradiction(
        "--enable-auto-tool-choice requires --tool-call-parser: name the format of the model's "
        "calls",
        "enable-auto-tool-choice");
  }
  if (settings.Flag("enable-log-outputs") && !settings.Flag("enable-log-requests")) {
    return Contradiction("--enable-log-outputs requires --enable-log-requests: give both or none",
                         "enable-log-outputs");
  }
  if (settings.Flag("protect-all") && settings.List("api-key").empty() &&
      !settings.Given("api-key-file")) {
    return Contradiction(
        "--protect-all requires --api-key or --api-key-file: without them there is no key",
        "protect-all");
  }
  if (settings.Flag("enable-log-requests") && settings.Flag("disable-log-requests")) {
    return Contradiction(
        "--enable-log-requests and --disable-log-requests contradict each other: give one of them",
        "enable-log-requests");
  }
  if (settings.Flag("disable-log-stats") && settings.Given("log-stats-interval")) {
    return Contradiction(
        "--disable-log-stats and --log-stats-interval contradict each other: give one of them",
        "log-stats-interval");
  }
  if (settings.Given("response-store") && !settings.Flag("enable-response-store")) {
    return Contradiction(
        "--response-store requires --enable-response-store: without it no response is stored",
        "response-store");
  }
  if (settings.TextOr("distributed-executor-backend") == "ray") {
    return Contradiction(
        "--distributed-executor-backend ray: Ray is not supported; use mp on one machine, or start "
        "the ranks on several machines with mpirun or Slurm",
        "distributed-executor-backend");
  }
  if (settings.Flag("headless") && settings.Integer("node-rank").value_or(0) == 0) {
    return Contradiction(
        "--headless requires --node-rank above 0: the first machine has the server", "headless");
  }
  const bool custom = settings.TextOr("fingerprint-mode") == "custom";
  if (custom != settings.Given("fingerprint-value")) {
    return Contradiction(
        "--fingerprint-mode custom and --fingerprint-value belong together: give both or none",
        "fingerprint-mode");
  }
  return {};
}

}  // namespace sluice::cli
