// Fields of the access log that describe an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/api/answer/answer_writer.h"
#include "server/http/http_types.h"

namespace sluice {

// Wraps `writer`, counts its events, and describes the answer with ResponseWriter::Describe of
// `client`: immediately with the known fields; after each step with the tokens so far and, in case
// the client disconnects, the reason "abort"; before the last event with token counts and finish
// reasons.
std::unique_ptr<AnswerWriter> WithNotes(std::unique_ptr<AnswerWriter> writer,
                                        std::shared_ptr<ResponseWriter> client, std::string id,
                                        int64_t prompt_tokens);

}  // namespace sluice
