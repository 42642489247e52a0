// Shared by `chat` and `complete`: a connection to a server, which is remote or started by the
// command.
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
  // Which clients may use a server that Start() starts. kPrivate: only this process; the server
  // listens on a free port of the loopback interface. kForOthers: also other processes; it listens
  // at --host and --port.
  enum class Openness { kPrivate, kForOthers };

  // Starts a server if a model but no --url is given; otherwise connects to --url. Until this
  // returns, SIGINT ends the process; after that, interrupt() receives it.
  static Result<std::unique_ptr<Talk>> Start(const options::Settings& settings,
                                             Openness openness = Openness::kPrivate);
  ~Talk();

  const OpenAiClient& client() const { return *client_; }
  // The address of the server.
  const Url& url() const { return url_; }
  // The single text to send: --quick, or the arguments after the model; nullopt for a conversation.
  const std::optional<std::string>& question() const { return question_; }
  AnswerSettings& settings() { return settings_; }
  InterruptDescriptor& interrupt() { return interrupt_; }

  // Calls `ask` with each line of standard input until its end. On a terminal, SIGINT clears the
  // line or ends the current answer. Otherwise it ends the loop, so that an interrupted script does
  // not ask its next question. Returns the exit code of the last question; a failed question does
  // not end the conversation.
  int ForEachLine(const std::function<Result<AnswerEnd>(const std::string& line)>& ask);

 private:
  // Returns nullopt at the end of the input, or if a script is interrupted.
  std::optional<std::string> ReadLine(bool is_terminal);

  // StartServer and Connect set url_ and client_.
  Status StartServer(const options::Settings& settings, Openness openness);
  Status Connect(const options::Settings& settings);
  Status ReadWords(const options::Settings& settings);

  InterruptDescriptor interrupt_;
  std::unique_ptr<Serving> serving_;
  Url url_;
  std::optional<std::string> question_;
  std::unique_ptr<OpenAiClient> client_;
  AnswerSettings settings_;
  std::string input_;
  bool input_ended_ = false;
};

// Returns an answer's `text` in the form in which to print it: on a terminal, control characters
// are escaped; otherwise it is unchanged.
std::string Shown(std::string_view text);

// Prints a fragment of an answer and flushes. Throws std::system_error if writing fails, as
// fmt::print does.
void PrintPiece(std::string_view text);

}  // namespace sluice::cli
