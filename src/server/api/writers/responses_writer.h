// The answer of POST /v1/responses: a whole response, or the events of its stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "server/api/answer_writer.h"
#include "server/api/response_tools.h"

namespace sluice {

// The JSON of a response but for what the answer decides: the texts between its members `output`,
// `status` and `usage`.
struct ResponseFrame {
  // `shown`: ResponsesRequest::shown. `created`: Unix time.
  ResponseFrame(std::string id, int64_t created, const std::string& model, const json::Value& shown,
                const SamplingParams& sampling);

  // A response. `output`: JSON of its items, without brackets; `usage`: JSON; `error`: JSON, or ""
  // for none.
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
  // Called when a stream begins, and when the response is over, before the client hears of that:
  // with its JSON and the ids of its items. May be empty.
  std::function<void(const std::string& body, std::vector<std::string> item_ids, bool is_over)>
      keep;
};

// `options.stream`: the events go to `client`, whoever reads them.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(ResponsesAnswer answer, AnswerOptions options,
                                                  std::shared_ptr<ResponseWriter> client);

}  // namespace sluice
