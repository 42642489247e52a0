#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "cli/serving.h"
#include "cli/write_file.h"
#include "client/stream_client.h"
#include "eval/eval_client.h"
#include "eval/eval_prompts.h"
#include "eval/eval_questions.h"
#include "eval/eval_score.h"

namespace sluice::cli {
namespace {

constexpr int kExitBelowBaseline = 1;
constexpr int64_t kPlainExamples = 5;  // as in lm_eval's gsm8k
// Number of questions that are also asked in another form, to estimate the score of that form.
constexpr size_t kHintQuestions = 8;

// The server that answers the questions: a remote one, or one that this command starts.
struct Target {
  std::unique_ptr<Serving> serving;
  Remote remote;
  std::string model;
  std::string description;  // shown above the table
  // The endpoint that the address names: true for /chat/completions, false for /completions,
  // nullopt if it names no endpoint.
  std::optional<bool> chat;
};

// Strips the endpoint from an address, because lm_eval's base_url contains the whole path.
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
    ASSIGN_OR_RETURN(target.remote, RemoteAt(settings, *address));
    Url& url = target.remote.url;
    if (url.path.ends_with("/completions")) target.chat = url.path.ends_with("/chat/completions");
    url = ServerOf(std::move(url));
    if (target.model.empty()) {
      ASSIGN_OR_RETURN(const auto models, target.remote.openai().ListModels());
      target.model = models[0];
    }
    target.description = fmt::format("base_url={},model={}", *address, target.model);
    return target;
  }
  if (target.model.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "which server or model? Give the --url of a running server, or --model to load a "
                "model here",
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
  target.remote.url = Url{.host = "127.0.0.1", .port = target.serving->server().port()};
  if (!server_config.api_keys.empty()) target.remote.api_key = server_config.api_keys[0];
  target.model = model.name;
  target.description = fmt::format("model={}", target.model);
  return target;
}

// The form in which questions are asked.
struct Form {
  bool chat = false;
  int64_t num_examples = 0;

  bool operator==(const Form&) const = default;
};

EvalRequestOptions RequestOptions(const options::Settings& settings, const Target& target,
                                  const Form& form) {
  EvalRequestOptions options;
  options.model = target.model;
  options.chat = form.chat;
  options.max_tokens = *settings.Integer("max-gen-toks");
  options.stop = EvalStopTexts();
  if (settings.Given("add-special-tokens"))
    options.add_special_tokens = settings.Flag("add-special-tokens");
  options.num_concurrent = static_cast<int>(*settings.Integer("num-concurrent"));
  options.max_retries = static_cast<int>(*settings.Integer("max-retries"));
  options.timeout_seconds = *settings.Number("timeout");
  return options;
}

// Whether the server can render a chat, because the model has a chat template.
bool HasChatTemplate(const HttpClient& client, const std::string& model) {
  const json::Value message(json::Value::Object{{"role", "user"}, {"content", "1"}});
  const json::Value body(
      json::Value::Object{{"model", model}, {"messages", json::Value::Array{message}}});
  const auto answer = client.Post("/tokenize", json::Write(body));
  if (!answer || answer->status != 200) return false;
  const auto tokens = json::Parse(answer->body);
  return tokens && tokens->Find("count") != nullptr;
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

json::Value RunConfig(const options::Settings& settings, const Target& target, const Form& form) {
  json::Value config{json::Value::Object{}};
  config.Set("model", json::Value(form.chat ? "local-chat-completions" : "local-completions"));
  config.Set("model_args", json::Value(target.description));
  config.Set("file", json::Value(settings.positionals()[0]));
  config.Set("max_gen_toks", json::Value(*settings.Integer("max-gen-toks")));
  config.Set("fewshot_seed", json::Value(*settings.Integer("fewshot-seed")));
  return config;
}

// Prompts and answers.
struct Asked {
  std::vector<json::Value> prompts;
  std::vector<std::string> answers;
};

// Asks the first `limit` questions. `shows`: shows progress on a terminal.
Result<Asked> AskInForm(const options::Settings& settings, const HttpClient& client,
                        const Target& target, const Form& form,
                        const std::vector<EvalQuestion>& questions,
                        const std::vector<EvalQuestion>& pool, size_t limit, bool shows) {
  const FewShotOptions few_shot{.count = form.num_examples,
                                .seed = static_cast<uint32_t>(*settings.Integer("fewshot-seed")),
                                .from_same_questions = !settings.Text("fewshot")};
  ASSIGN_OR_RETURN(const auto examples, PickExamples(questions, limit, pool, few_shot));
  Asked asked;
  StatusLine line;
  for (size_t i = 0; i < examples.size(); ++i) {
    asked.prompts.push_back(
        form.chat ? ChatPrompt(questions[i], examples[i], settings.Flag("fewshot-as-multiturn"))
                  : json::Value(CompletionPrompt(questions[i], examples[i])));
  }
  ASSIGN_OR_RETURN(asked.answers,
                   AskPrompts(client, asked.prompts, RequestOptions(settings, target, form),
                              [&](int64_t done, int64_t total) {
                                if (!shows) return;
                                line.Show(fmt::format("{} of {} questions", done, total));
                                if (done == total) line.End();
                              }));
  return asked;
}

double BestOf(const EvalScore& score) {
  double best = 0;
  for (const FilterScore& filter : score.filters) best = std::max(best, filter.value);
  return best;
}

// Asks the first `count` questions in another form. If its score is higher, prints how to use it.
void PrintHint(const options::Settings& settings, const HttpClient& client, const Target& target,
               const Form& other, std::vector<EvalQuestion> questions,
               const std::vector<EvalQuestion>& pool, size_t count,
               std::vector<std::string> answers) {
  const auto asked =
      AskInForm(settings, client, target, other, questions, pool, count, /*shows=*/false);
  if (!asked) return;  // the hint is optional
  questions.resize(count);
  answers.resize(count);
  const auto right = [&](const std::vector<std::string>& all) {
    return std::lround(BestOf(ScoreAnswers(questions, all)) * static_cast<double>(count));
  };
  const auto here = right(answers), there = right(asked->answers);
  if (there <= here) return;
  PrintError(fmt::format(
      "hint: of the first {} questions, {} are answered correctly with these prompts, and {} with "
      "{} --num-fewshot {}\n",
      count, here, there, other.chat ? "--apply-chat-template" : "--no-apply-chat-template",
      other.num_examples));
}

// Reads the file of --baseline; null if it is not given.
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
  // Checks all files first, because answering the questions takes minutes.
  ASSIGN_OR_RETURN(std::vector<EvalQuestion> questions,
                   ReadEvalQuestions(settings.positionals()[0]));
  std::vector<EvalQuestion> pool = questions;
  if (const auto file = settings.Text("fewshot")) {
    ASSIGN_OR_RETURN(pool, ReadEvalQuestions(*file));
  }
  ASSIGN_OR_RETURN(const json::Value baseline, ReadBaseline(settings));

  ASSIGN_OR_RETURN(const Target target, FindTarget(settings));
  const HttpClient client = target.remote.http();
  StreamClient::MaxConnections();  // raises the limit of open files
  std::optional<bool> chat = target.chat;
  if (settings.Given("apply-chat-template")) chat = settings.Flag("apply-chat-template");
  Form form{.chat = chat ? *chat : HasChatTemplate(client, target.model)};
  form.num_examples = settings.Integer("num-fewshot").value_or(form.chat ? 0 : kPlainExamples);

  const auto limit =
      static_cast<size_t>(settings.Integer("limit").value_or(std::numeric_limits<int64_t>::max()));
  ASSIGN_OR_RETURN(Asked asked, AskInForm(settings, client, target, form, questions, pool, limit,
                                          isatty(STDERR_FILENO) != 0));
  questions.resize(asked.answers.size());
  EvalScore score = ScoreAnswers(questions, asked.answers);
  score.task = settings.TextOr("task");
  score.num_fewshot = form.num_examples;
  const json::Value config = RunConfig(settings, target, form);
  const EvalRequestOptions options = RequestOptions(settings, target, form);
  if (settings.Flag("eval-json")) {
    fmt::print("{}\n", json::Write(EvalResultJson(score, config)));
  } else {
    fmt::print("{} ({}), gen_kwargs: ({}), limit: {}, num_fewshot: {}, batch_size: 1\n{}{}",
               config.Find("model")->as_string(), target.description,
               options.add_special_tokens
                   ? fmt::format("add_special_tokens={}", *options.add_special_tokens)
                   : "None",
               settings.Given("limit") ? fmt::to_string(limit) : "None", form.num_examples,
               EvalTable(score), ConfidenceText(score));
  }
  std::fflush(stdout);
  const bool has_template = (form.chat && !chat) || HasChatTemplate(client, target.model);
  const Form other{.chat = has_template, .num_examples = has_template ? 0 : kPlainExamples};
  if (other != form) {
    const size_t count = std::min(kHintQuestions, questions.size());
    PrintHint(settings, client, target, other, questions, pool, count, asked.answers);
  }
  if (const auto path = settings.Text("output-path"))
    RETURN_IF_ERROR(
        WriteResultFile("output-path", *path, json::Write(EvalResultJson(score, config)) + "\n"));
  if (const auto path = settings.Text("log-samples"))
    RETURN_IF_ERROR(WriteResultFile("log-samples", *path,
                                    SampleLines(questions, asked.prompts, asked.answers)));
  if (baseline.is_null()) return 0;
  return CompareWithBaseline(score, baseline, *settings.Number("max-drop"));
}

}  // namespace sluice::cli
