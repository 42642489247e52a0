// Routes for development and operation (VLLM_SERVER_DEV_MODE=1): holding requests back, ending
// them, emptying the cache, looking inside.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "server/api/api.h"
#include "server/api/field_reader.h"
#include "server/api/python_text.h"
#include "server/api/request_body.h"

extern char** environ;

namespace sluice {
namespace {

// The first value of `name` in a query string.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (PercentDecode(pair.substr(0, equals)) == name)
      return PercentDecode(pair.substr(std::min(equals + 1, pair.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return std::nullopt;
}

// 400 for a value that is none of `choices`, in the words of the other validation errors.
ApiResult<std::string> QueryChoice(const HttpRequest& request, std::string_view name,
                                   std::initializer_list<std::string_view> choices,
                                   std::string_view expected) {
  const std::optional<std::string> value = QueryValue(request.query, name);
  if (!value) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return *value;
  const json::Value none{json::Value::Object{}};
  std::vector<FieldError> errors;
  FieldReader reader(none, "query", &errors);
  reader.Add("literal_error", name, fmt::format("Input should be {}", expected),
             json::Value(*value), fmt::format("{{'expected': {}}}", PythonRepr(expected)));
  return ValidationFailed(errors);
}

bool IsSecret(std::string_view name) {
  for (const std::string_view word : {"KEY", "TOKEN", "SECRET", "PASSWORD"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// What of the environment this program may read.
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
      result.Set(name, IsSecret(name) || !IsUtf8(value) ? std::string("***") : value);
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
  result.Set("dtype", info.dtype);
  result.Set("kv_cache_dtype", info.kv_cache_dtype);
  result.Set("max_model_len", info.max_model_len);
  result.Set("max_num_seqs", info.max_num_seqs);
  result.Set("max_num_batched_tokens", info.max_num_batched_tokens);
  result.Set("block_size", static_cast<int64_t>(info.block_size));
  result.Set("num_blocks", info.num_blocks);
  result.Set("weight_bytes", info.weight_bytes);
  result.Set("kv_cache_bytes", info.kv_bytes);
  result.Set("priority_scheduling", config.priority_scheduling);
  result.Set("max_logprobs", static_cast<int64_t>(config.max_logprobs));
  return result;
}

}  // namespace

void Api::ServerInfo(const HttpRequest& request, Writer writer) {
  const ApiResult<std::string> format =
      QueryChoice(request, "config_format", {"text", "json"}, "'text' or 'json'");
  if (!format) return writer->Send(Refusal(format.error()));
  const Model current = model();
  json::Value info{json::Value::Object{}};
  if (current != nullptr) {
    const json::Value settings = Settings(config_, current->engine->info());
    info.Set("vllm_config", *format == "json" ? settings : json::Value(json::Write(settings)));
    info.Set("vllm_env", Environment());
    info.Set("system_env", Machine(current->engine->info()));
  }
  writer->Send(JsonResponse(json::Write(info)));
}

void Api::ResetCache(const HttpRequest&, Writer writer, Model model) {
  const bool done = model->engine->ResetPrefixCache();
  writer->Send(JsonResponse(fmt::format(R"({{"success":{}}})", done)));
}

void Api::ResetNothing(const HttpRequest&, Writer writer, Model) {
  HttpResponse response;
  response.content_type.clear();
  writer->Send(std::move(response));
}

void Api::Pause(const HttpRequest& request, Writer writer, Model model) {
  const ApiResult<std::string> mode =
      QueryChoice(request, "mode", {"abort", "wait", "keep"}, "'abort', 'wait' or 'keep'");
  if (!mode) return writer->Send(Refusal(mode.error()));
  if (*mode == "keep") {
    return writer->Send(Refusal(
        BadParameter("This server cannot stop requests in the middle and go on with them later; "
                     "use mode=wait or mode=abort",
                     "mode")
            .value()));
  }
  const bool clear = QueryValue(request.query, "clear_cache").value_or("true") != "false";
  active_->Pause([this, writer, model, clear] {
    // Off the engine's and the I/O threads: emptying the cache waits for the engine.
    pool_.Submit([writer, model, clear] {
      if (clear) model->engine->ResetPrefixCache();
      writer->Send(JsonResponse(R"({"status":"paused"})"));
    });
  });
  if (*mode == "abort") active_->AbortRunning();
}

void Api::Resume(const HttpRequest&, Writer writer, Model) {
  active_->Resume();
  writer->Send(JsonResponse(R"({"status":"resumed"})"));
}

void Api::IsPaused(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(fmt::format(R"({{"is_paused":{}}})", active_->paused())));
}

void Api::Sleep(const HttpRequest& request, Writer writer, Model model) {
  const ApiResult<std::string> level = QueryChoice(request, "level", {"1", "0", "2"}, "0, 1 or 2");
  if (!level) return writer->Send(Refusal(level.error()));
  LOG_WARNING("server",
              "sleeping: requests are held back and the prefix cache is emptied; weights and cache "
              "stay in memory, which this server does not give back");
  {
    std::lock_guard lock(sleep_mutex_);
    sleeping_ = true;
    metrics_->SetSleeping(true);
    active_->Pause([this, writer, model, level = *level] {
      pool_.Submit([writer, model, level] {
        model->engine->ResetPrefixCache();
        writer->Send(JsonResponse(fmt::format(R"({{"status":"sleeping","level":{}}})", level)));
      });
    });
  }
  active_->AbortRunning();
}

void Api::WakeUp(const HttpRequest& request, Writer writer, Model) {
  {
    std::lock_guard lock(sleep_mutex_);
    sleeping_ = false;
    metrics_->SetSleeping(false);
    active_->Resume();
  }
  std::string body = R"({"status":"awake","tags":)";
  if (const auto tags = QueryValue(request.query, "tags")) {
    body.push_back('[');
    json::AppendString(body, *tags);
    body.push_back(']');
  } else {
    body += "null";
  }
  writer->Send(JsonResponse(body + "}"));
}

void Api::IsSleeping(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(fmt::format(R"({{"is_sleeping":{}}})", sleeping_.load())));
}

void Api::AbortRequests(const HttpRequest& request, Writer writer, Model) {
  std::vector<std::string> ids;
  if (!request.body.empty()) {
    ApiResult<json::Value> body = ParseRequestBody(request);
    if (!body) return writer->Send(Refusal(body.error()));
    if (!body->is_object()) return writer->Send(Refusal(NotAnObject(*body).value()));
    std::vector<FieldError> errors;
    FieldReader reader(*body, "body", &errors);
    if (reader.Raw("request_ids") != nullptr) ids = reader.Strings("request_ids");
    if (!errors.empty()) return writer->Send(Refusal(ValidationFailed(errors).value()));
  }
  const int count = active_->Abort(ids);
  writer->Send(JsonResponse(fmt::format(R"({{"status":"aborted","aborted":{}}})", count)));
}

void Api::WorldSize(const HttpRequest&, Writer writer) {
  writer->Send(JsonResponse(R"({"world_size":1})"));
}

void Api::CollectiveRpc(const HttpRequest& request, Writer writer, Model) {
  ApiError error;
  error.type = "Bad Request";
  const ApiResult<json::Value> body = ParseJsonAsPython(request.body);
  if (!body) {
    error.message = "JSON decode error: " + body.error().message;
  } else if (!body->is_object() || body->Find("method") == nullptr) {
    error.message = "Missing 'method' in request body";
  } else {
    error.message = "This server has no worker processes whose methods could be called.";
  }
  writer->Send(Refusal(error));
}

}  // namespace sluice
