#include <cstdio>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/talk.h"

namespace sluice::cli {

Result<int> RunComplete(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Talk> talk, Talk::Start(settings));
  const auto complete = [&](const std::string& prompt) {
    talk->interrupt().Clear();
    auto answer =
        talk->client().Complete(talk->settings(), prompt, PrintPiece, talk->interrupt().fd());
    fmt::print("\n");
    return answer;
  };
  if (const auto prompt = settings.Text("quick")) {
    ASSIGN_OR_RETURN(const AnswerEnd end, complete(*prompt));
    return end.cancelled ? 130 : 0;
  }
  int code = 0;
  while (const auto line = talk->ReadLine("> ")) {
    if (line->empty()) continue;
    code = 0;
    if (const auto answer = complete(*line); !answer) {
      fmt::print(stderr, "error: {}\n", answer.error().message);
      code = ExitCode(answer.error().code);
    }
  }
  return code;
}

}  // namespace sluice::cli
