// GET /server_info: settings, environment, machine.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/utf8.h"
#include "server/api/common/query.h"
#include "server/api/context/route_table.h"

extern char** environ;

namespace sluice {
namespace {

bool IsSecret(std::string_view name) {
  for (const std::string_view word : {"KEY", "TOKEN", "SECRET", "PASSWORD"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// Returns the environment variables of this and related programs, with secrets masked.
json::Value Environment() {
  json::Value result{json::Value::Object{}};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = std::min(text.find('='), text.size());
    const std::string name(text.substr(0, equals));
    for (const std::string_view prefix :
         {"VLLM_", "HF_", "SLUICE_", "TRTLLM_", "CUDA_", "HIP_", "ROCM_", "SAFETENSORS_"}) {
      if (!name.starts_with(prefix)) continue;
      const std::string value(text.substr(std::min(equals + 1, text.size())));
      result.Set(name, IsSecret(name) || !IsValidUtf8(value) ? std::string("***") : value);
    }
  }
  return result;
}

json::Value Machine(const EngineInfo& info) {
  json::Value result{json::Value::Object{}};
  utsname name{};
  if (uname(&name) == 0) {
    result.Set("os", fmt::format("{} {}", name.sysname, name.release));
    result.Set("machine", std::string(name.machine));
  }
  result.Set("cpu_count", static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  result.Set("instruction_set", info.isa);
  result.Set("threads", static_cast<int64_t>(info.num_threads));
  return result;
}

json::Value Settings(const ServerConfig& config, const EngineInfo& info) {
  json::Value result{json::Value::Object{}};
  result.Set("model", config.model_argument);
  result.Set("architecture", info.model.architecture);
  result.Set("dtype", std::string(DtypeName(info.dtype)));
  result.Set("kv_cache_dtype", std::string(DtypeName(info.kv_cache_dtype)));
  result.Set("max_model_len", info.max_model_len);
  result.Set("max_num_seqs", info.max_num_seqs);
  result.Set("max_num_batched_tokens", info.max_num_batched_tokens);
  result.Set("data_parallel_size", static_cast<int64_t>(info.num_engines));
  result.Set("block_size", static_cast<int64_t>(info.block_size));
  result.Set("num_blocks", info.num_blocks);
  result.Set("weight_bytes", info.weight_bytes);
  result.Set("kv_cache_bytes", info.kv_bytes);
  result.Set("priority_scheduling", config.priority_scheduling);
  result.Set("max_logprobs", static_cast<int64_t>(config.max_logprobs));
  return result;
}

ApiStatus ServerInfo(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string format,
                       QueryChoice(call.request, "config_format", {"text", "json"}));
  json::Value info{json::Value::Object{}};
  if (call.model != nullptr) {
    const EngineInfo& engine = call.model->engine->info();
    const json::Value settings = Settings(call.api.config, engine);
    info.Set("vllm_config", format == "json" ? settings : json::Value(json::Write(settings)));
    info.Set("vllm_env", Environment());
    info.Set("system_env", Machine(engine));
  }
  call.client->Send(JsonResponse(json::Write(info)));
  return {};
}

}  // namespace

std::vector<Route> ServerInfoRoutes() {
  return {OnIoThread("/server_info", {"GET"}, RouteGate::kDev, ServerInfo,
                     "Settings, environment, machine.")};
}

}  // namespace sluice
