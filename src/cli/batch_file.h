// Files of requests in the format of OpenAI's batch API: one JSON object a line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::cli {

// One line of the input.
struct BatchRequest {
  std::string custom_id;
  std::string path;  // "/v1/chat/completions"
  std::string body;  // JSON
};

// kInvalidArgument names the field that is wrong; `custom_id` is set even then where the line has
// one.
Status ParseBatchRequest(std::string_view line, BatchRequest& request);

// One line of the output, without its end. `body` is the server's answer, parsed.
std::string BatchAnswer(const std::string& custom_id, int status, const json::Value& body);
// The same for a request that was not sent to the server.
std::string BatchError(const std::string& custom_id, int status, const std::string& message);

struct BatchTotals {
  int64_t requests = 0;
  int64_t failed = 0;
};

// Answers every line of `input` with `answer`, which `workers` threads call concurrently, and
// writes the answers to `output` in the order of the lines. They are written to `output`.part,
// which is renamed once it is complete and remains after a failure. Memory: a few lines for each
// worker. kNotFound for a missing input, kInvalidData for one that cannot be read to its end; stops
// once answers cannot be written.
using BatchWork = std::function<std::string(const std::string& line, bool& failed)>;
Result<BatchTotals> RunBatchFile(const std::string& input, const std::string& output, int workers,
                                 const BatchWork& answer);

}  // namespace sluice::cli
