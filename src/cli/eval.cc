#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "client/openai_client.h"
#include "client/stream_client.h"
#include "eval/eval_client.h"
#include "eval/eval_prompts.h"
#include "eval/eval_questions.h"
#include "eval/eval_score.h"

namespace sluice::cli {
namespace {

constexpr int kExitBelowBaseline = 1;

// The server to ask: a remote one, or one started here.
struct Target {
  std::unique_ptr<Serving> serving;
  Url url;
  std::string model;
  std::string description;  // for the line above the table
};

std::string ApiKeyOf(const options::Settings& settings) {
  if (const auto keys = settings.List("api-key"); !keys.empty()) return keys[0];
  const char* key = std::getenv("OPENAI_API_KEY");
  return key == nullptr ? "" : key;
}

// The server's own part of an address: lm_eval's base_url has the whole path of an endpoint.
Url ServerOf(Url url) {
  for (std::string_view end : {"/chat/completions", "/completions", "/v1"}) {
    if (url.path.ends_with(end)) url.path.resize(url.path.size() - end.size());
  }
  return url;
}

Result<Target> FindTarget(const options::Settings& settings) {
  Target target;
  target.model = settings.TextOr("eval-model");
  if (const auto address = settings.Text("eval-url")) {
    ASSIGN_OR_RETURN(Url url, ParseUrl(*address));
    target.url = ServerOf(std::move(url));
    if (target.model.empty()) {
      const OpenAiClient client(target.url, ApiKeyOf(settings));
      ASSIGN_OR_RETURN(const auto models, client.ListModels());
      target.model = models[0];
    }
    target.description = fmt::format("base_url={},model={}", *address, target.model);
    return target;
  }
  if (target.model.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "whom to ask? Give --base-url of a running server, or --model to load one here",
                "eval-url");
  }
  if (!settings.Given("log-level")) SetLogLevel(LogLevel::kWarning);
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings, target.model));
  ASSIGN_OR_RETURN(const EngineConfig engine_config, MakeEngineConfig(settings, model));
  ServerConfig server_config = MakeServerConfig(settings, model);
  server_config.host = "127.0.0.1";
  server_config.port = 0;
  server_config.disable_access_log = true;
  ASSIGN_OR_RETURN(target.serving, Serving::Bind(server_config));
  RETURN_IF_ERROR(target.serving->Load(engine_config, model, LoadReport::kNowhere));
  target.url = Url{.host = "127.0.0.1", .port = target.serving->server().port(), .path = ""};
  target.model = model.name;
  target.description = fmt::format("model={}", target.model);
  return target;
}

EvalRequestOptions RequestOptions(const options::Settings& settings, const Target& target) {
  EvalRequestOptions options;
  options.model = target.model;
  options.chat = settings.Flag("apply-chat-template");
  options.max_tokens = *settings.Integer("max-gen-toks");
  options.stop = EvalStopTexts();
  if (settings.Given("add-special-tokens"))
    options.add_special_tokens = settings.Flag("add-special-tokens");
  options.num_concurrent = static_cast<int>(*settings.Integer("num-concurrent"));
  options.max_retries = static_cast<int>(*settings.Integer("max-retries"));
  options.timeout_seconds = *settings.Number("timeout");
  return options;
}

// Whether the server can render a chat for the model.
bool HasChatTemplate(const HttpClient& client, const std::string& model) {
  const json::Value message(json::Value::Object{{"role", "user"}, {"content", "1"}});
  const json::Value body(
      json::Value::Object{{"model", model}, {"messages", json::Value::Array{message}}});
  const auto answer = client.Post("/tokenize", json::Write(body));
  if (!answer || answer->status != 200) return false;
  const auto tokens = json::Parse(answer->body);
  return tokens && tokens->Find("count") != nullptr;
}

Status WriteText(const std::string& path, std::string_view option, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--{}: cannot write {}", option, path),
                std::string(option));
  }
  return {};
}

std::string SampleLines(const std::vector<EvalQuestion>& questions,
                        const std::vector<json::Value>& prompts,
                        const std::vector<std::string>& answers) {
  std::string lines;
  for (size_t i = 0; i < questions.size(); ++i) {
    json::Value line{json::Value::Object{}};
    line.Set("doc_id", json::Value(static_cast<int64_t>(i)));
    line.Set("question", json::Value(questions[i].question));
    line.Set("target", json::Value(questions[i].answer));
    line.Set("prompt", prompts[i]);
    line.Set("answer", json::Value(answers[i]));
    lines += json::Write(line) + "\n";
  }
  return lines;
}

json::Value RunConfig(const options::Settings& settings, const Target& target) {
  json::Value config{json::Value::Object{}};
  config.Set("model", json::Value(settings.Flag("apply-chat-template") ? "local-chat-completions"
                                                                       : "local-completions"));
  config.Set("model_args", json::Value(target.description));
  config.Set("file", json::Value(settings.positionals()[0]));
  config.Set("max_gen_toks", json::Value(*settings.Integer("max-gen-toks")));
  config.Set("fewshot_seed", json::Value(*settings.Integer("fewshot-seed")));
  return config;
}

// Reads the file of --baseline; null without one.
Result<json::Value> ReadBaseline(const options::Settings& settings) {
  const auto path = settings.Text("baseline");
  if (!path) return json::Value();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, uint64_t{64} << 20));
  auto parsed = json::Parse(text);
  if (!parsed) return tl::unexpected<Error>(std::move(parsed).error().In("--baseline " + *path));
  return parsed;
}

Result<int> CompareWithBaseline(const EvalScore& score, const json::Value& baseline,
                                double max_drop) {
  ASSIGN_OR_RETURN(const auto drops, FindDrops(score, baseline, max_drop));
  for (const EvalDrop& drop : drops) {
    fmt::print(stderr, "error: {} dropped from {:.4f} to {:.4f}, by {:.4f}; --max-drop is {:g}\n",
               drop.filter, drop.before, drop.now, drop.before - drop.now, max_drop);
  }
  return drops.empty() ? 0 : kExitBelowBaseline;
}

}  // namespace

Result<int> RunEval(const options::Settings& settings) {
  if (settings.positionals().empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "which questions? Give a file of JSON lines with \"question\" and \"answer\"",
                "file");
  }
  // Errors in files are found before the questions, which take minutes.
  ASSIGN_OR_RETURN(std::vector<EvalQuestion> questions,
                   ReadEvalQuestions(settings.positionals()[0]));
  FewShotOptions few_shot;
  few_shot.count = *settings.Integer("num-fewshot");
  few_shot.seed = static_cast<uint32_t>(*settings.Integer("fewshot-seed"));
  std::vector<EvalQuestion> pool = questions;
  if (const auto file = settings.Text("fewshot")) {
    ASSIGN_OR_RETURN(pool, ReadEvalQuestions(*file));
    few_shot.from_same_questions = false;
  }
  const auto limit =
      static_cast<size_t>(settings.Integer("limit").value_or(std::numeric_limits<int64_t>::max()));
  ASSIGN_OR_RETURN(const auto examples, PickExamples(questions, limit, pool, few_shot));
  questions.resize(examples.size());
  ASSIGN_OR_RETURN(const json::Value baseline, ReadBaseline(settings));

  ASSIGN_OR_RETURN(const Target target, FindTarget(settings));
  const EvalRequestOptions options = RequestOptions(settings, target);
  std::vector<json::Value> prompts;
  for (size_t i = 0; i < questions.size(); ++i) {
    prompts.push_back(
        options.chat ? ChatPrompt(questions[i], examples[i], settings.Flag("fewshot-as-multiturn"))
                     : json::Value(CompletionPrompt(questions[i], examples[i])));
  }
  std::map<std::string, std::string> headers;
  if (const std::string key = ApiKeyOf(settings); !key.empty())
    headers["Authorization"] = "Bearer " + key;
  const HttpClient client(target.url, headers);
  StreamClient::MaxConnections();  // raises the limit of open files
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto answers = AskPrompts(client, prompts, options, [&](int64_t done, int64_t total) {
    if (terminal)
      PrintError(fmt::format("\r{} of {} questions{}", done, total, done == total ? "\n" : ""));
  });
  if (!answers) return tl::unexpected<Error>(answers.error());

  EvalScore score = ScoreAnswers(questions, *answers);
  score.task = settings.TextOr("task");
  score.num_fewshot = few_shot.count;
  const json::Value config = RunConfig(settings, target);
  fmt::print(
      "{} ({}), gen_kwargs: ({}), limit: {}, num_fewshot: {}, batch_size: 1\n{}",
      config.Find("model")->as_string(), target.description,
      options.add_special_tokens ? fmt::format("add_special_tokens={}", *options.add_special_tokens)
                                 : "None",
      settings.Given("limit") ? fmt::to_string(limit) : "None", few_shot.count, EvalTable(score));
  std::fflush(stdout);
  if (!options.chat && HasChatTemplate(client, target.model)) {
    PrintError(
        "hint: the model has a chat template, and questions as plain text may score far lower: "
        "--apply-chat-template asks in its form\n");
  }
  if (const auto path = settings.Text("output-path"))
    RETURN_IF_ERROR(
        WriteText(*path, "output-path", json::Write(EvalResultJson(score, config)) + "\n"));
  if (const auto path = settings.Text("log-samples"))
    RETURN_IF_ERROR(WriteText(*path, "log-samples", SampleLines(questions, prompts, *answers)));
  if (baseline.is_null()) return 0;
  return CompareWithBaseline(score, baseline, *settings.Number("max-drop"));
}

}  // namespace sluice::cli
