#include "server/api/answer_writer.h"

#include "server/api/writers/writers.h"

namespace sluice {

std::unique_ptr<AnswerWriter> MakeAnswerWriter(AnswerShape shape, AnswerOptions options,
                                               std::shared_ptr<ResponseWriter> client) {
  const bool is_trtllm = options.model->config.dialect == ApiDialect::kTrtllm;
  const auto make = shape == AnswerShape::kChat
                        ? (is_trtllm ? MakeTrtllmChatWriter : MakeVllmChatWriter)
                        : (is_trtllm ? MakeTrtllmCompletionWriter : MakeVllmCompletionWriter);
  return make(std::move(options), std::move(client));
}

}  // namespace sluice
