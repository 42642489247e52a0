#include "server/api/common/answer_event.h"

namespace sluice {

std::string_view FinishReasonName(const FinishEvent& finish) {
  if (std::holds_alternative<FinishEvent::Repetition>(finish.cause)) return "repetition";
  switch (finish.reason) {
    case FinishReason::kStop: return finish.called_tools ? "tool_calls" : "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAbort: return "abort";
    case FinishReason::kError: break;
  }
  return "error";
}

}  // namespace sluice
