#include <cstdio>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/talk.h"

namespace sluice::cli {

Result<int> RunComplete(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Talk> talk, Talk::Start(settings));
  const auto complete = [&](const std::string& prompt) {
    auto answer = talk->client().Complete(
        talk->settings(), prompt, [](std::string_view piece) { PrintPiece(Shown(piece)); },
        talk->interrupt().fd());
    fmt::print("\n");
    return answer;
  };
  if (const auto& prompt = talk->question()) {
    ASSIGN_OR_RETURN(const AnswerEnd end, complete(*prompt));
    return end.cancelled ? 130 : 0;
  }
  return talk->ForEachLine(complete);
}

}  // namespace sluice::cli
