#include "server/api/openai/vllm_writer.h"

#include <fmt/format.h>

#include "server/api/common/answer_json.h"

namespace sluice {

void VllmWriter::AppendFingerprint(std::string& out) const {
  const std::string& fingerprint = options_.model->fingerprint;
  if (fingerprint.empty() && options_.stream) return;
  out += R"(,"system_fingerprint":)";
  AppendString(out, fingerprint, /*shown=*/!fingerprint.empty());
}

void VllmWriter::AppendWholeUsage(std::string& out, const UsageEvent& usage,
                                  std::string_view created_cache) const {
  out += R"(,"service_tier":null)";
  AppendFingerprint(out);
  out += R"(,"usage":)";
  AppendUsage(out, usage.prompt_tokens, usage.completion_tokens);
  AppendSimulated(out);
  out += R"(,"prompt_tokens_details":)";
  if (options_.model->config.enable_prompt_tokens_details) {
    out += fmt::format(R"({{"cached_tokens":{}{},"multimodal_tokens":null}})", usage.cached_tokens,
                       created_cache);
  } else {
    out += "null";
  }
  AppendCompletionDetails(out, usage);
  out.push_back('}');
}

void VllmWriter::AppendTimes(std::string& out, const UsageEvent& usage) const {
  out += R"(,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":)";
  if (tells_times()) {
    usage.clock.AppendTo(out, /*whole=*/true);
  } else {
    out += "null";
  }
}

}  // namespace sluice
