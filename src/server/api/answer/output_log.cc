#include "server/api/answer/output_log.h"

#include "base/log.h"
#include "server/api/common/python_text.h"

namespace sluice {

void OutputLog::Add(std::string_view more, size_t num_more_tokens, int64_t limit) {
  // A character has at most four bytes, so this keeps at least `limit` characters.
  if (limit < 0 || static_cast<int64_t>(text.size()) < 4 * limit) text += more;
  num_tokens += static_cast<int64_t>(num_more_tokens);
}

void OutputLog::Write(std::string_view request_id, bool is_stream, const FinishEvent& finish,
                      int64_t limit) const {
  const std::string_view shown =
      limit < 0 ? std::string_view(text) : TrimToCharacters(text, static_cast<size_t>(limit));
  LOG_INFO("server", "Generated response {}{}: output: {}, output tokens: {}, finish_reason: {}",
           request_id, is_stream ? " (streaming complete)" : "", PythonRepr(shown), num_tokens,
           FinishReasonName(finish));
}

}  // namespace sluice
