// The writers, each in a file of its own. MakeAnswerWriter() chooses between them.
#pragma once

#include <memory>

#include "server/api/answer_writer.h"

namespace sluice {

using WriterFactory = std::unique_ptr<AnswerWriter>(AnswerOptions options,
                                                    std::shared_ptr<ResponseWriter> client);

WriterFactory MakeVllmCompletionWriter;
WriterFactory MakeVllmChatWriter;
WriterFactory MakeTrtllmCompletionWriter;
WriterFactory MakeTrtllmChatWriter;

}  // namespace sluice
