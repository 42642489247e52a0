// Files of requests as OpenAI's batch API has them: one JSON object a line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::cli {

// One line of the input: what to post where.
struct BatchRequest {
  std::string custom_id;
  std::string path;  // "/v1/chat/completions"
  std::string body;  // JSON
};

// kInvalidArgument says which field is wrong; `custom_id` is set where the line has one, even then.
Status ParseBatchRequest(std::string_view line, BatchRequest& request);

// One line of the output, without its end. `body` is the server's answer, parsed.
std::string BatchAnswer(const std::string& custom_id, int status, const json::Value& body);
// The same for a request that never reached the server.
std::string BatchError(const std::string& custom_id, int status, const std::string& message);

struct BatchTotals {
  int64_t requests = 0;
  int64_t failed = 0;
};

// Answers every line of `input` by `answer`, which `workers` threads call side by side, and writes
// the answers to `output` in the order of the lines; a file appears there only when it is whole.
// Memory: a few lines for each worker. kNotFound for an input that is not there, kInvalidData for
// one that cannot be read to its end; stops early once answers cannot be written. What was answered
// until then is left in `output`.part.
using BatchWork = std::function<std::string(const std::string& line, bool& failed)>;
Result<BatchTotals> RunBatchFile(const std::string& input, const std::string& output, int workers,
                                 const BatchWork& answer);

}  // namespace sluice::cli
