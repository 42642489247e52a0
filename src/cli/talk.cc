#include "cli/talk.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/configs.h"
#include "cli/exit_code.h"
#include "cli/remote.h"
#include "hardware/memory.h"

namespace sluice::cli {
namespace {

constexpr size_t kMaxToolsBytes = size_t{16} << 20;

// Limits for a server that mainly serves one person at a terminal, but may run a few more requests
// at the same time.
constexpr int64_t kTalkSequences = 4;
constexpr int64_t kTalkCacheBytes = int64_t{1} << 30;

// Limits the memory of a server for one person, unless the user sets limits.
void TakeLittle(const options::Settings& settings, EngineConfig& config) {
  if (!config.max_num_seqs) config.max_num_seqs = kTalkSequences;
  for (const std::string_view name : {"gpu-memory-utilization", "kv-cache-memory-bytes",
                                      "num-gpu-blocks-override", "max-model-len"}) {
    if (settings.Given(name)) return;
  }
  config.kv_cache_bytes = std::min(kTalkCacheBytes, ReadMemoryLimits().available_bytes / 8);
}

bool HasBlank(std::string_view word) {
  return word.find_first_of(" \t\n") != std::string_view::npos;
}

std::string Joined(const std::vector<std::string>& words, size_t first) {
  return fmt::format("{}", fmt::join(words.begin() + static_cast<long>(first), words.end(), " "));
}

}  // namespace

// Reads the positional arguments. With --url: an optional model name, and a text; otherwise: a
// model and a text.
Status Talk::ReadWords(const options::Settings& settings) {
  const std::vector<std::string>& words = settings.positionals();
  const auto quick = settings.Text("quick");
  const bool named = !words.empty() && !HasBlank(words[0]);
  std::error_code ignored;
  if (!settings.Given("url") && !words.empty() && !named &&
      !std::filesystem::exists(words[0], ignored)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a model: give the model before the text, or --url of a "
                            "running server instead of a model",
                            words[0]),
                "model");
  }
  if (settings.Given("url")) {
    settings_.model = named ? words[0] : settings.TextOr("model", settings.TextOr("model-name"));
    if (words.size() > (named ? 1 : 0)) question_ = Joined(words, named ? 1 : 0);
  } else {
    settings_.model = settings.TextOr("model-name");
    if (words.size() > 1) question_ = Joined(words, 1);
  }
  if (question_ && quick) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "--quick and the words after the model both give the text to send: use only one of them",
        "quick");
  }
  if (quick) question_ = quick;
  return {};
}

Status Talk::StartServer(const options::Settings& settings, Openness openness) {
  if (!settings.Given("log-level")) SetLogLevel(LogLevel::kWarning);
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings));
  ASSIGN_OR_RETURN(EngineConfig engine_config, MakeEngineConfig(settings, model));
  TakeLittle(settings, engine_config);
  ServerConfig server_config = MakeServerConfig(settings, model);
  const bool for_others = openness == Openness::kForOthers;
  server_config.host = for_others ? settings.TextOr("host") : "127.0.0.1";
  server_config.port =
      for_others ? static_cast<uint16_t>(settings.Integer("port").value_or(0)) : uint16_t{0};
  server_config.disable_access_log = true;
  server_config.enable_prompt_tokens_details = true;
  if (settings.Given("chat-tools")) {
    server_config.enable_auto_tool_choice = true;
    server_config.tool_call_parser = "auto";
  }
  auto bound = Serving::Bind(server_config);
  if (!bound && bound.error().code == ErrorCode::kAddressInUse && !settings.Given("port")) {
    server_config.port = 0;
    bound = Serving::Bind(server_config);
  }
  if (!bound) return tl::unexpected<Error>(std::move(bound).error());
  serving_ = *std::move(bound);
  RETURN_IF_ERROR(
      serving_->Load(engine_config, model,
                     isatty(STDERR_FILENO) == 0 ? LoadReport::kNowhere : LoadReport::kProgress));
  const bool any = server_config.host == "0.0.0.0" || server_config.host == "::";
  url_ = Url{.host = any ? "127.0.0.1" : server_config.host, .port = serving_->server().port()};
  const std::string key = server_config.api_keys.empty() ? "" : server_config.api_keys[0];
  client_ = std::make_unique<OpenAiClient>(url_, key);
  return {};
}

Status Talk::Connect(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const Remote remote,
                   RemoteAt(settings, settings.TextOr("url", "http://127.0.0.1:8000")));
  url_ = remote.url;
  client_ = std::make_unique<OpenAiClient>(remote.openai());
  return {};
}

Result<std::unique_ptr<Talk>> Talk::Start(const options::Settings& settings, Openness openness) {
  BlockSignals({SIGINT});
  const EndOnInterrupt guard;
  auto talk = std::make_unique<Talk>();
  RETURN_IF_ERROR(talk->ReadWords(settings));
  const bool starts = HasModelArgument(settings) && !settings.Given("url");
  RETURN_IF_ERROR(starts ? talk->StartServer(settings, openness) : talk->Connect(settings));

  if (talk->settings_.model.empty()) {
    ASSIGN_OR_RETURN(const auto models, talk->client_->ListModels());
    talk->settings_.model = models[0];
  }
  if (const auto path = settings.Text("chat-tools")) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, kMaxToolsBytes));
    auto tools = json::Parse(text);
    if (!tools || !tools->is_array()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--tools: {} does not contain a JSON list of tools", *path), "tools");
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
  // Throws like fmt::print, because the rest of the answer has no reader.
  if (std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
}

}  // namespace sluice::cli
