// Writes the answer of POST /v1/responses: a whole response, or the events of its stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/request/response_tools.h"

namespace sluice {

// The constant parts of a response's JSON: the text around its members `output`, `status` and
// `usage`.
struct ResponseFrame {
  // `shown`: like ResponsesRequest::shown. `created`: Unix time in seconds.
  ResponseFrame(std::string id, int64_t created, const std::string& model, const json::Value& shown,
                const SamplingParams& sampling);

  // Returns the JSON of a response. `output`: JSON of its items, without brackets. `usage`: JSON.
  // `error`: JSON, or "" if there is none.
  std::string Body(std::string_view status, std::string_view output, std::string_view usage,
                   std::string_view error = "") const;
  size_t bytes() const;

  std::string id;
  int64_t created_at = 0;
  std::string before_output, before_status, before_usage, after_usage;
};

struct ResponsesAnswer {
  ResponseFrame frame;
  NamespacedTools namespaced_tools;
  // Called with the response's JSON and the ids of its items: when a stream begins, and when the
  // response is over, before the client receives the end. May be empty.
  std::function<void(const std::string& body, std::vector<std::string> item_ids, bool is_over)>
      keep;
};

// Makes the writer. With `options.stream` it sends events to `client`, else the whole response.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(ResponsesAnswer answer, AnswerOptions options,
                                                  std::shared_ptr<ResponseWriter> client);

}  // namespace sluice
