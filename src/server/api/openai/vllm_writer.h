// What vLLM's completions and chats have in common.
#pragma once

#include <string>
#include <string_view>

#include "server/api/openai/openai_writer.h"

namespace sluice {

class VllmWriter : public OpenAiWriter {
 protected:
  using OpenAiWriter::OpenAiWriter;

  // Left out of a stream, null in a whole body where there is none.
  void AppendFingerprint(std::string& out) const;
  // What follows the choices of a whole body: up to `usage`, and the end.
  void AppendWholeUsage(std::string& out, const UsageEvent& usage,
                        std::string_view created_cache) const;
  void AppendTimes(std::string& out, const UsageEvent& usage) const;
};

}  // namespace sluice
