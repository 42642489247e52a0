// Processes request files in the format of OpenAI's batch API: one JSON object per line.
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
  std::string path;  // for example "/v1/chat/completions"
  std::string body;  // JSON text
};

// kInvalidArgument names the invalid field. `custom_id` is set even in this case, if the line has
// one.
Status ParseBatchRequest(std::string_view line, BatchRequest& request);

// Returns one line of the output, without its line end. `body`: the server's parsed response.
std::string BatchAnswer(const std::string& custom_id, int status, const json::Value& body);
// Like BatchAnswer, for a request that was not sent to the server.
std::string BatchError(const std::string& custom_id, int status, const std::string& message);

struct BatchTotals {
  int64_t requests = 0;
  int64_t failed = 0;
};

// Answers every line of `input` with `answer`, which `workers` threads call concurrently, and
// writes the answers in input order to `output`.part. This file is renamed to `output` when
// complete, and remains after a failure. Stops if writing fails. Memory: a few lines per worker.
// kNotFound if the input is missing, kInvalidData if it cannot be read to its end.
using BatchWork = std::function<std::string(const std::string& line, bool& failed)>;
Result<BatchTotals> RunBatchFile(const std::string& input, const std::string& output, int workers,
                                 const BatchWork& answer);

}  // namespace sluice::cli
