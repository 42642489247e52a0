#include "server/api/common/answer_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/append_format.h"
#include "base/json.h"

namespace sluice {

void AppendFinish(std::string& out, const std::optional<FinishEvent>& finish) {
  if (!finish) {
    out += R"("finish_reason":null,"stop_reason":null)";
    return;
  }
  out += fmt::format(R"("finish_reason":"{}","stop_reason":)", FinishReasonName(*finish));
  if (const auto* text = std::get_if<std::string>(&finish->cause)) {
    json::AppendString(out, *text);
  } else if (const auto* token = std::get_if<int32_t>(&finish->cause)) {
    out += std::to_string(*token);
  } else if (std::holds_alternative<FinishEvent::Repetition>(finish->cause)) {
    out += R"("repetition_detected")";
  } else {
    out += "null";
  }
}

void AppendTokenIds(std::string& out, std::span<const int32_t> ids) {
  AppendFormat(out, "[{}]", fmt::join(ids, ","));
}

void AppendTokenIds(std::string& out, std::span<const int32_t> ids, bool shown) {
  if (!shown) {
    out += "null";
    return;
  }
  AppendTokenIds(out, ids);
}

void AppendString(std::string& out, std::string_view text, bool shown) {
  if (!shown) {
    out += "null";
    return;
  }
  json::AppendString(out, text);
}

void AppendToolCalls(std::string& out, std::span<const ToolCallEvent> calls, bool pieces) {
  out.push_back('[');
  for (size_t i = 0; i < calls.size(); ++i) {
    const ToolCallEvent& call = calls[i];
    out += i == 0 ? "{" : ",{";
    const bool begins = !call.name.empty();
    if (begins) {
      out += R"("id":)";
      json::AppendString(out, call.id);
      out += R"(,"type":"function",)";
    }
    if (pieces) out += fmt::format(R"("index":{},)", call.call);
    out += R"("function":{)";
    if (begins) {
      out += R"("name":)";
      json::AppendString(out, call.name);
    }
    out += begins ? R"(,"arguments":)" : R"("arguments":)";
    json::AppendString(out, call.arguments);
    out += "}}";
  }
  out.push_back(']');
}

void AppendReceipt(std::string& out, const UsageEvent& usage) {
  if (usage.receipt == nullptr) return;
  out += R"(,"receipt":)";
  out += *usage.receipt;
}

void AppendCompletionDetails(std::string& out, const UsageEvent& usage) {
  if (usage.reasoning_tokens) {
    out += fmt::format(R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})",
                       *usage.reasoning_tokens);
  } else {
    out += R"(,"completion_tokens_details":null)";
  }
}

void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens) {
  out += fmt::format(R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{})",
                     prompt_tokens, prompt_tokens + completion_tokens, completion_tokens);
}

}  // namespace sluice
