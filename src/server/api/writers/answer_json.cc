#include "server/api/writers/answer_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
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

void AppendUsage(std::string& out, int64_t prompt_tokens, int64_t completion_tokens) {
  out += fmt::format(R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{})",
                     prompt_tokens, prompt_tokens + completion_tokens, completion_tokens);
}

}  // namespace sluice
