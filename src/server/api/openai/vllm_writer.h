// Base of the writers of vLLM's completions and chats.
#pragma once

#include <string>
#include <string_view>

#include "server/api/openai/openai_writer.h"

namespace sluice {

class VllmWriter : public OpenAiWriter {
 protected:
  using OpenAiWriter::OpenAiWriter;

  // Without a fingerprint, appends nothing in a stream and null in a whole body.
  void AppendFingerprint(std::string& out) const;
  // Appends the members after the choices of a whole body, up to `usage`. AppendTimes appends the
  // last members.
  void AppendWholeUsage(std::string& out, const UsageEvent& usage,
                        std::string_view created_cache) const;
  void AppendTimes(std::string& out, const UsageEvent& usage) const;
};

}  // namespace sluice
