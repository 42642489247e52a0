// What the log says of an answer beside its status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/api/answer_writer.h"
#include "server/http/http_types.h"

namespace sluice {

// `writer`, whose events are counted on the way: before the last of them `client` is told of the
// answer's tokens and how it ended, and at once of what is known already.
std::unique_ptr<AnswerWriter> WithNotes(std::unique_ptr<AnswerWriter> writer,
                                        std::shared_ptr<ResponseWriter> client, std::string id,
                                        int64_t prompt_tokens);

}  // namespace sluice
