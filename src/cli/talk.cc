#include "cli/talk.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/configs.h"
#include "cli/exit_code.h"

namespace sluice::cli {
namespace {

constexpr size_t kMaxToolsBytes = size_t{16} << 20;

std::string ApiKey(const options::Settings& settings) {
  if (const auto keys = settings.List("api-key"); !keys.empty()) return keys[0];
  const char* key = std::getenv("OPENAI_API_KEY");
  return key == nullptr ? "" : key;
}

}  // namespace

Result<std::unique_ptr<Talk>> Talk::Start(const options::Settings& settings) {
  BlockSignals({SIGINT});
  const EndOnInterrupt guard;
  auto talk = std::make_unique<Talk>();
  std::string url = settings.TextOr("url", "http://127.0.0.1:8000");
  if (HasModelArgument(settings)) {
    if (settings.Given("url")) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "--url talks to a running server and a model argument starts one: give one of them",
          "url");
    }
    if (!settings.Given("log-level")) SetLogLevel(LogLevel::kWarning);
    ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
    ASSIGN_OR_RETURN(const EngineConfig engine_config, MakeEngineConfig(settings, model));
    ServerConfig server_config = MakeServerConfig(settings, model);
    server_config.host = "127.0.0.1";
    server_config.port = 0;
    server_config.disable_access_log = true;
    server_config.enable_prompt_tokens_details = true;
    if (settings.Given("chat-tools")) {
      server_config.enable_auto_tool_choice = true;
      server_config.tool_call_parser = "auto";
    }
    ASSIGN_OR_RETURN(talk->serving_, Serving::Bind(server_config));
    RETURN_IF_ERROR(talk->serving_->Load(
        engine_config, model,
        isatty(STDERR_FILENO) == 0 ? LoadReport::kNowhere : LoadReport::kTerminal));
    url = fmt::format("http://127.0.0.1:{}", talk->serving_->server().port());
  }
  ASSIGN_OR_RETURN(Url address, ParseUrl(url));
  talk->client_ = std::make_unique<OpenAiClient>(std::move(address), ApiKey(settings));

  talk->settings_.model = settings.TextOr("model-name");
  if (talk->settings_.model.empty()) {
    ASSIGN_OR_RETURN(const auto models, talk->client_->ListModels());
    talk->settings_.model = models[0];
  }
  if (const auto path = settings.Text("chat-tools")) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, kMaxToolsBytes));
    auto tools = json::Parse(text);
    if (!tools || !tools->is_array()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--tools: {} holds no JSON list of tools", *path), "tools");
    }
    talk->settings_.tools = *std::move(tools);
  }
  talk->settings_.max_tokens = settings.Integer("max-tokens");
  talk->settings_.temperature = settings.Number("temperature");
  talk->settings_.top_p = settings.Number("top-p");
  talk->settings_.seed = settings.Integer("request-seed");
  return talk;
}

Talk::~Talk() = default;

int Talk::ForEachLine(const std::function<Result<AnswerEnd>(const std::string& line)>& ask) {
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  int code = 0;
  while (const auto line = ReadLine(is_terminal)) {
    if (line->empty()) continue;
    const auto answer = ask(*line);
    code = answer ? 0 : ExitCode(answer.error().code);
    if (!answer) fmt::print(stderr, "error: {}\n", answer.error().message);
    if (answer && answer->cancelled) {
      if (!is_terminal) break;
      interrupt_.Clear();
    }
  }
  return !is_terminal && interrupt_.Clear() ? ExitCode(ErrorCode::kCancelled) : code;
}

std::optional<std::string> Talk::ReadLine(bool is_terminal) {
  const auto show = [&] {
    if (!is_terminal) return;
    fmt::print("> ");
    std::fflush(stdout);
  };
  show();
  while (true) {
    if (const size_t end = input_.find('\n'); end != std::string::npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      return line;
    }
    if (input_ended_) {
      if (input_.empty()) return std::nullopt;
      return std::exchange(input_, {});
    }
    pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return std::nullopt;
    if (fds[1].revents != 0) {
      if (!is_terminal) return std::nullopt;
      interrupt_.Clear();
      input_.clear();
      fmt::print("\n(Ctrl-D leaves)\n");
      show();
    }
    if (fds[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      input_ended_ = true;
    } else {
      input_.append(bytes, static_cast<size_t>(got));
    }
  }
}

std::string Shown(std::string_view text) {
  return isatty(STDOUT_FILENO) != 0 ? EscapeControls(text, "\n\t") : std::string(text);
}

void PrintPiece(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace sluice::cli
