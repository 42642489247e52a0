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
  // Until it returns, SIGINT ends the process; then it is interrupt()'s.
  static Result<std::unique_ptr<Talk>> Start(const options::Settings& settings);
  ~Talk();

  const OpenAiClient& client() const { return *client_; }
  const AnswerSettings& settings() const { return settings_; }
  InterruptDescriptor& interrupt() { return interrupt_; }

  // Asks each line of standard input, until it ends or, where it is no terminal, until SIGINT: an
  // interrupted script must not go on with its next question. On a terminal that starts the line
  // anew, or ends the answer alone. The exit code is that of the last question: one that fails does
  // not end the conversation.
  int ForEachLine(const std::function<Result<AnswerEnd>(const std::string& line)>& ask);

 private:
  // Nothing at the end of the input, or when a script is interrupted.
  std::optional<std::string> ReadLine(bool is_terminal);

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
