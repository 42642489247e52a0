#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/exit_code.h"
#include "cli/line_editor.h"
#include "cli/markdown_stream.h"
#include "cli/talk.h"
#include "media/image_file.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct ChatCommand {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
};
constexpr std::array kChatCommands = {
    ChatCommand{"/help", "", "this list"},
    ChatCommand{"/clear", "", "start a new conversation; the system message stays"},
    ChatCommand{"/save", "FILE", "write the conversation to a file, as JSON"},
    ChatCommand{"/load", "FILE", "continue the conversation in a file"},
    ChatCommand{"/system", "[TEXT]", "show the system message, or set it"},
    ChatCommand{"/model", "[NAME]", "list the models of the server, or change to one"},
    ChatCommand{"/image", "FILE", "send an image with the next message"},
    ChatCommand{"/stats", "", "turn on or off the display of tokens per second and cached tokens"},
    ChatCommand{"/markdown", "", "turn the rendering of Markdown on or off"},
    ChatCommand{"/bye", "", "leave, as Ctrl-D does"},
};
// Names of these commands in other programs.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kChatSynonyms = {{
    {"/?", "/help"},
    {"/h", "/help"},
    {"/exit", "/bye"},
    {"/quit", "/bye"},
    {"/q", "/bye"},
    {"/reset", "/clear"},
}};

std::string_view CommandOf(std::string_view name) {
  for (const auto& [synonym, command] : kChatSynonyms) {
    if (name == synonym) return command;
  }
  return name;
}

bool HasColors() {
  const char* terminal = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || no_color[0] == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

double SecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

class Chat {
 public:
  Chat(Talk& talk, const options::Settings& settings) : talk_(talk), colors_(HasColors()) {
    if (const auto system = settings.Text("system-prompt")) conversation_.SetSystem(*system);
    talk_.settings().usage = settings.Flag("chat-stats");
    if (!settings.Flag("chat-markdown")) return;
    if (isatty(STDOUT_FILENO) != 0) {
      SetMarkdown(true);
    } else {
      fmt::print(stderr, "warning: --markdown has no effect: the output is not a terminal\n");
    }
  }

  Result<AnswerEnd> Ask(const std::string& question) {
    conversation_.Add(question, std::exchange(images_, {}));
    const Clock::time_point asked = Clock::now();
    std::optional<Clock::time_point> first;
    auto answer = talk_.client().Chat(
        talk_.settings(), conversation_.ToJson(),
        [&](std::string_view piece) {
          if (!first) first = Clock::now();
          PrintPiece(markdown_ ? markdown_->Add(piece) : Shown(piece));
        },
        talk_.interrupt().fd());
    const Clock::time_point ended = Clock::now();
    fmt::print("{}\n", markdown_ ? markdown_->End() : "");
    if (!answer) {
      conversation_.TakeBack();
      return answer;
    }
    for (const ToolCall& call : answer->calls)
      fmt::print("call {}({})\n", Shown(call.name), Shown(call.arguments));
    if (answer->usage) {
      PrintStats(*answer->usage, SecondsBetween(asked, first.value_or(ended)),
                 SecondsBetween(first.value_or(ended), ended));
    }
    conversation_.Add(*answer);
    return answer;
  }

  // Runs the conversation on a terminal. Returns the exit code of the last question.
  int Converse(const options::Settings& settings) {
    const std::string given = settings.TextOr("history-file");
    const std::filesystem::path history = given == "none" ? ""
                                          : given.empty() ? HistoryFile("chat_history").string()
                                                          : given;
    LineEditor editor({.prompt = "> ",
                       .colors = colors_,
                       .history_file = history,
                       .complete = [this](std::string_view line) { return Completions(line); },
                       .interrupt_fd = talk_.interrupt().fd()});
    PrintGreeting();
    int code = 0;
    bool told = false;
    while (true) {
      const LineEditor::Line line = editor.Read();
      if (!told && !editor.history_problem().empty()) {
        fmt::print(stderr, "warning: {}\n", editor.history_problem());
        told = true;
      }
      if (line.end == LineEditor::End::kEndOfInput) return code;
      if (line.end == LineEditor::End::kInterrupted) {
        talk_.interrupt().Clear();
        fmt::print("(Ctrl-D leaves)\n");
        continue;
      }
      if (line.text.find_first_not_of(" \n\t") == std::string::npos) continue;
      if (line.text[0] == '/' && !line.text.starts_with("//")) {
        const auto go_on = Execute(line.text);
        if (!go_on) fmt::print(stderr, "error: {}\n", go_on.error().message);
        if (go_on && !*go_on) return code;
        continue;
      }
      const auto answer = Ask(line.text.substr(line.text[0] == '/' ? 1 : 0));
      code = answer ? 0 : ExitCode(answer.error().code);
      if (!answer) fmt::print(stderr, "error: {}\n", answer.error().message);
      if (answer && answer->cancelled) talk_.interrupt().Clear();
    }
  }

 private:
  // Runs a command. Returns false if it ends the conversation.
  Result<bool> Execute(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = CommandOf(std::string_view(line).substr(0, space));
    const size_t begin = std::min(line.find_first_not_of(' ', space), line.size());
    const std::string argument = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
    if (name == "/bye") return false;
    if (name == "/help") {
      PrintHelp();
    } else if (name == "/clear") {
      conversation_.Clear();
    } else if (name == "/save" || name == "/load") {
      if (argument.empty()) {
        return Fail(ErrorCode::kInvalidArgument, fmt::format("{} FILE: which file?", name));
      }
      RETURN_IF_ERROR(name == "/save" ? conversation_.Save(argument)
                                      : conversation_.Load(argument));
      fmt::print("{} {} messages {} {}\n", name == "/save" ? "saved" : "loaded",
                 conversation_.size(), name == "/save" ? "in" : "of", argument);
    } else if (name == "/image") {
      RETURN_IF_ERROR(Attach(argument));
    } else if (name == "/system") {
      if (!argument.empty()) conversation_.SetSystem(argument);
      const std::string system = conversation_.System();
      fmt::print("system: {}\n", system.empty() ? "(none)" : system);
    } else if (name == "/model") {
      RETURN_IF_ERROR(ChangeModel(argument));
    } else if (name == "/stats") {
      talk_.settings().usage = !talk_.settings().usage;
      fmt::print("stats {}\n", talk_.settings().usage ? "on" : "off");
    } else if (name == "/markdown") {
      SetMarkdown(!markdown_);
      fmt::print("markdown {}\n", markdown_ ? "on" : "off");
    } else {
      std::vector<std::string> known;
      for (const ChatCommand& command : kChatCommands) known.emplace_back(command.name);
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("no command is called {}{}; /help lists them, // begins a message "
                              "with /",
                              name, DidYouMean(name, known)));
    }
    return true;
  }

  void PrintGreeting() const {
    fmt::print("{}{}{} at {}\n", colors_ ? "\x1b[1m" : "", Shown(talk_.settings().model),
               colors_ ? "\x1b[0m" : "", ServerText(talk_.url()));
    fmt::print("/? lists the commands, /bye or Ctrl-D leaves.\n");
  }

  // Reads an image that is sent with the next question.
  Status Attach(const std::string& file) {
    if (file.empty()) return Fail(ErrorCode::kInvalidArgument, "/image FILE: which file?");
    ASSIGN_OR_RETURN(const ImageFile image, ReadImageFile(file));
    images_.push_back(image.url);
    fmt::print("{} image of {} x {} pixels, for the next message\n",
               ImageFormatName(image.header.format), image.header.width, image.header.height);
    return {};
  }

  void SetMarkdown(bool on) {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    markdown_.reset();
    if (on)
      markdown_.emplace(MarkdownOptions{.styles = colors_, .columns = known ? size.ws_col : 80});
  }

  Status ChangeModel(const std::string& name) {
    ASSIGN_OR_RETURN(const std::vector<std::string> models, talk_.client().ListModels());
    if (name.empty()) {
      for (const std::string& model : models)
        fmt::print("{} {}\n", model == talk_.settings().model ? "*" : " ", model);
      return {};
    }
    if (std::find(models.begin(), models.end(), name) == models.end()) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("the server has no model {}: expected one of {}", name,
                              fmt::join(models, ", ")));
    }
    talk_.settings().model = name;
    fmt::print("model: {}\n", name);
    return {};
  }

  std::vector<std::string> Completions(std::string_view line) const {
    std::vector<std::string> lines;
    if (!line.starts_with('/')) return lines;
    for (const ChatCommand& command : kChatCommands) {
      if (command.name.starts_with(line)) lines.emplace_back(command.name);
    }
    constexpr std::string_view kModel = "/model ";
    if (line.starts_with(kModel)) {
      const auto models = talk_.client().ListModels();
      for (const std::string& model : models ? *models : std::vector<std::string>()) {
        if (model.starts_with(line.substr(kModel.size())))
          lines.push_back(std::string(kModel) + model);
      }
    }
    return lines;
  }

  void PrintStats(const AnswerUsage& usage, double wait_seconds, double stream_seconds) const {
    std::string text =
        fmt::format("[{} tokens, the first after {:.2f} s", usage.completion_tokens, wait_seconds);
    if (usage.completion_tokens > 1 && stream_seconds > 0) {
      text += fmt::format(", then {:.1f} tokens/s",
                          static_cast<double>(usage.completion_tokens - 1) / stream_seconds);
    }
    text += fmt::format("; {} prompt tokens, ", usage.prompt_tokens);
    if (usage.cached_tokens && usage.prompt_tokens > 0) {
      text += fmt::format("{:.0f} % of them cached]",
                          100.0 * static_cast<double>(*usage.cached_tokens) /
                              static_cast<double>(usage.prompt_tokens));
    } else {
      text += "the server does not report cached tokens (--enable-prompt-tokens-details)]";
    }
    fmt::print("{}{}{}\n", colors_ ? "\x1b[2m" : "", text, colors_ ? "\x1b[0m" : "");
  }

  static void PrintHelp() {
    for (const ChatCommand& command : kChatCommands) {
      fmt::print("  {:<16} {}\n", fmt::format("{} {}", command.name, command.arguments),
                 command.help);
    }
    fmt::print(
        "  Ctrl-C ends an answer or discards a line, Ctrl-R searches the history, Tab completes.\n"
        "  A pasted text is one message with its line breaks; a backslash at the end of a line "
        "goes\n"
        "  on in the next.\n");
  }

  Talk& talk_;
  const bool colors_;
  std::optional<MarkdownStream> markdown_;  // nullopt: answers are not rendered
  Conversation conversation_;
  std::vector<std::string> images_;  // images for the next question, as data: URLs
};

Result<int> TalkInChat(const options::Settings& settings, Talk::Openness openness) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Talk> talk, Talk::Start(settings, openness));
  Chat chat(*talk, settings);
  if (const auto& question = talk->question()) {
    ASSIGN_OR_RETURN(const AnswerEnd end, chat.Ask(*question));
    return end.cancelled ? 130 : 0;
  }
  // Lines of a script are always questions, never commands.
  if (isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) return chat.Converse(settings);
  return talk->ForEachLine([&](const std::string& line) { return chat.Ask(line); });
}

}  // namespace

Result<int> RunChat(const options::Settings& settings) {
  return TalkInChat(settings, Talk::Openness::kPrivate);
}

Result<int> RunAndChat(const options::Settings& settings) {
  return TalkInChat(settings, Talk::Openness::kForOthers);
}

}  // namespace sluice::cli
