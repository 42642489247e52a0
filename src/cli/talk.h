// What chat and complete share: a server to talk to, somebody else's or one started here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "client/openai_client.h"
#include "options/settings.h"

namespace sluice::cli {

class Talk {
 public:
  // With a model argument: starts it on a free port of the loopback. Otherwise connects to --url.
  static Result<std::unique_ptr<Talk>> Start(const options::Settings& settings);
  ~Talk();

  const OpenAiClient& client() const { return *client_; }
  const AnswerSettings& settings() const { return settings_; }
  InterruptDescriptor& interrupt() { return interrupt_; }

  // The next line of standard input; nothing at its end. On a terminal it shows `prompt`, and
  // Ctrl-C starts the line anew.
  std::optional<std::string> ReadLine(const std::string& prompt);

 private:
  InterruptDescriptor interrupt_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<OpenAiClient> client_;
  AnswerSettings settings_;
  std::string input_;
  bool input_ended_ = false;
};

// Prints the pieces of an answer as they come.
void PrintPiece(std::string_view text);

}  // namespace sluice::cli
