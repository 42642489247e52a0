#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/weights_digest.h"
#include "cli/arithmetic_profile.h"
#include "cli/command.h"
#include "cli/configs.h"
#include "cli/serving.h"
#include "client/http_client.h"
#include "engine/engine.h"
#include "options/sources.h"
#include "receipt/receipt.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxReceiptBytes = uint64_t{256} << 20;
constexpr int kExitDifferent = 1;     // the receipt is wrong
constexpr int kExitUnverifiable = 3;  // this machine cannot verify the receipt

Result<json::Value> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxReceiptBytes));
  auto value = json::Parse(text, {.max_bytes = kMaxReceiptBytes, .max_depth = 64});
  if (!value) return tl::unexpected(std::move(value).error().In(path));
  return value;
}

int Different(const std::string& text) {
  fmt::print("different  {}\n", text);
  return kExitDifferent;
}

int Unverifiable(const std::string& text) {
  fmt::print("unverified {}\n", text);
  return kExitUnverifiable;
}

// Returns whether the key's signature is correct. The key may come from the receipt itself.
Result<bool> IsSigned(const options::Settings& settings, const ReadReceipt& read) {
  ASSIGN_OR_RETURN(SigningKey key, SigningKey::FromPublicHex(read.public_key));
  const auto file = settings.Text("public-key");
  if (file) {
    ASSIGN_OR_RETURN(key, SigningKey::LoadPublic(*file));
  }
  const bool is_signed = key.Verify(read.text, read.signature);
  if (is_signed && file) {
    fmt::print("signature  valid, of the key in {}\n", *file);
  } else if (is_signed) {
    fmt::print(
        "signature  valid, of the key in the receipt, ed25519:{}; use --public-key FILE to check "
        "whose key it is\n",
        key.public_hex());
  }
  return is_signed;
}

// Receives the answers to one prompt, and waits until all have ended.
class AnswerSink final : public RequestSink {
 public:
  explicit AnswerSink(int num_sequences)
      : tokens_(static_cast<size_t>(num_sequences)), num_open_(num_sequences) {}

  void OnPrompt(PromptResult /*result*/) override {}
  void OnUpdate(SequenceUpdate update) override {
    const std::lock_guard lock(mutex_);
    std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(update.sequence)];
    tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
    if (update.finish && --num_open_ == 0) changed_.notify_all();
  }
  void OnError(Error error) override {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    num_open_ = 0;
    changed_.notify_all();
  }

  Result<std::vector<std::vector<int32_t>>> Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ == 0; });
    if (error_) return tl::unexpected(*error_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<int32_t>> tokens_;
  int num_open_;
  std::optional<Error> error_;
};

std::string ProfileText(const Receipt& receipt, std::string_view name) {
  const json::Value* value = receipt.profile.Find(name);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Returns this command's options. Options that are not given have the values that the receipt's
// profile requires.
Result<options::Settings> ProfileSettings(const options::Settings& settings,
                                          const Receipt& receipt) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"dtype", "dtype"},
      {"kv_cache_dtype", "kv-cache-dtype"},
      {"activation-format", "activation-format"},
      {"quantization", "quantization"},
      {"head-format", "head-format"},
      {"hf-overrides", "hf-overrides"},
      {"rope-scaling", "rope-scaling"},
      {"rope-theta", "rope-theta"},
      {"device", "device"},
  };
  std::vector<std::string> words;
  for (const auto& [member, option] : kOptions) {
    const std::string value = ProfileText(receipt, member);
    if (!value.empty() && !settings.Given(option))
      words.push_back(fmt::format("--{}={}", option, value));
  }
  if (ProfileText(receipt, "device") == "cpu" && !settings.Given("cpu-isa"))
    words.push_back("--cpu-isa=" + ProfileText(receipt, "isa"));
  if (ProfileText(receipt, "batch-invariant") == "yes") words.emplace_back("--batch-invariant");
  ASSIGN_OR_RETURN(options::Resolved resolved,
                   options::Resolve(words, {}, options::kVerify, settings.dialect()));
  std::vector<options::Assignment> all = resolved.settings.assignments();
  all.insert(all.end(), settings.assignments().begin(), settings.assignments().end());
  return options::Settings(all, {}, settings.dialect());
}

// Returns the token ids of the request's prompts, as a server on this machine makes them.
Result<std::vector<std::vector<int32_t>>> TokenizeRequest(uint16_t port, const json::Value& body) {
  std::vector<json::Value> requests;
  const json::Value* prompt = body.Find("prompt");
  std::vector<std::vector<int32_t>> prompts;
  const auto add = [&](const json::Value& text) {
    json::Value request{json::Value::Object{}};
    request.Set("prompt", text);
    requests.push_back(std::move(request));
  };
  if (body.Find("messages") != nullptr) {
    json::Value request = body;
    request.Set("add_generation_prompt", true);
    std::erase_if(request.as_object(), [](const auto& member) { return member.first == "model"; });
    requests.push_back(std::move(request));
  } else if (prompt != nullptr && prompt->is_string()) {
    add(*prompt);
  } else if (prompt != nullptr && prompt->is_array()) {
    for (const json::Value& element : prompt->as_array()) add(element);
  }
  if (requests.empty()) {
    return Fail(ErrorCode::kInvalidData,
                "--request: expected the body of a chat or of a completion of texts: messages, or "
                "prompt",
                "request");
  }
  const HttpClient client(Url{.host = "127.0.0.1", .port = port});
  for (const json::Value& request : requests) {
    ASSIGN_OR_RETURN(const ClientResponse response, client.Post("/tokenize", json::Write(request)));
    const auto answer = json::Parse(response.body);
    const json::Value* ids = answer && answer->is_object() ? answer->Find("tokens") : nullptr;
    if (response.status != 200 || ids == nullptr || !ids->is_array()) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("--request: {}", response.body.substr(0, 500)), "request");
    }
    std::vector<int32_t>& tokens = prompts.emplace_back();
    for (const json::Value& id : ids->as_array())
      tokens.push_back(static_cast<int32_t>(id.as_integer()));
  }
  return prompts;
}

// Recomputes the answers to one prompt. Each has at most `most` tokens.
Result<std::vector<std::vector<int32_t>>> Recompute(Engine& engine, const Receipt& receipt,
                                                    const ReceiptPrompt& prompt,
                                                    std::vector<int32_t> ids, int64_t most) {
  Request request;
  request.id = receipt.id;
  request.prompt = std::move(ids);
  request.sampling = prompt.sampling;
  request.sampling.max_tokens = std::max<int64_t>(1, most);
  request.end_tokens = receipt.end_tokens;
  request.num_sequences = static_cast<int>(receipt.num_sequences);
  const auto sink = std::make_shared<AnswerSink>(request.num_sequences);
  request.sink = sink;
  RETURN_IF_ERROR(engine.Submit(std::move(request)));
  return sink->Wait();
}

// Compares the receipt's answer with the recomputed one; "" if they are equal.
std::string DifferenceOf(const ReceiptChoice& choice, const std::vector<int32_t>& computed) {
  const auto count = static_cast<size_t>(choice.num_tokens);
  if (computed.size() < count) {
    return fmt::format("expected {} tokens, found {}: the answer ends early", count,
                       computed.size());
  }
  const std::span<const int32_t> tokens = std::span(computed).first(count);
  if (!choice.token_ids.empty()) {
    for (size_t i = 0; i < std::min(count, choice.token_ids.size()); ++i) {
      if (choice.token_ids[i] != tokens[i])
        return fmt::format("token {}: expected {}, found {}", i, choice.token_ids[i], tokens[i]);
    }
    if (TokensSha256(choice.token_ids) != choice.sha256)
      return "the receipt's token ids do not match their hash";
  }
  const std::string found = TokensSha256(tokens);
  if (found == choice.sha256) return "";
  return fmt::format("hash of {} tokens: expected {}, found {}", count, choice.sha256, found);
}

Result<int> CompareAnswers(Engine& engine, const Receipt& receipt,
                           std::vector<std::vector<int32_t>> prompts) {
  int64_t num_tokens = 0;
  for (size_t i = 0; i < receipt.prompts.size(); ++i) {
    const ReceiptPrompt& prompt = receipt.prompts[i];
    if (i >= prompts.size() || prompts[i].empty()) {
      return Unverifiable(fmt::format(
          "prompt {}: the receipt has no token ids (--receipts-with-tokens): give the request's "
          "body with --request FILE",
          i));
    }
    const std::string found = TokensSha256(prompts[i]);
    if (found != prompt.sha256) {
      return Different(fmt::format("prompt {}: expected {} tokens with hash {}, found {} with {}",
                                   i, prompt.num_tokens, prompt.sha256, prompts[i].size(), found));
    }
    int64_t most = 0;
    for (const ReceiptChoice& choice : receipt.choices) {
      if (choice.prompt == static_cast<int32_t>(i)) most = std::max(most, choice.num_tokens);
    }
    ASSIGN_OR_RETURN(const auto answers,
                     Recompute(engine, receipt, prompt, std::move(prompts[i]), most));
    for (size_t place = 0; place < receipt.choices.size(); ++place) {
      const ReceiptChoice& choice = receipt.choices[place];
      if (choice.prompt != static_cast<int32_t>(i)) continue;
      const std::string difference =
          DifferenceOf(choice, answers[static_cast<size_t>(choice.sequence)]);
      if (!difference.empty()) return Different(fmt::format("choice {}, {}", place, difference));
      num_tokens += choice.num_tokens;
    }
  }
  fmt::print("equal      {} answers with {} tokens, bit for bit\n", receipt.choices.size(),
             num_tokens);
  return 0;
}

}  // namespace

Result<int> RunVerify(const options::Settings& settings) {
  const auto& words = settings.positionals();
  if (words.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "expected a receipt: sluice verify RECEIPT.json --model MODEL", "receipt");
  }
  if (!settings.Given("log-level")) SetLogLevel(LogLevel::kWarning);
  ASSIGN_OR_RETURN(const json::Value file, ReadJson(words[0]));
  ASSIGN_OR_RETURN(const ReadReceipt read, ParseReceipt(file));
  const Receipt& receipt = read.receipt;
  fmt::print("receipt    {}, {} by {}\n", receipt.id, receipt.model, receipt.program);
  ASSIGN_OR_RETURN(const bool is_signed, IsSigned(settings, read));
  if (!is_signed) return Different("signature: the receipt was changed, or another key signed it");
  const std::string named = settings.TextOr("recorded-model");
  if (named.empty()) {
    return Unverifiable("only the signature was checked: --model MODEL computes the answer again");
  }
  if (!receipt.also.empty()) {
    return Unverifiable(
        fmt::format("the answer depends on features that the receipt does not contain: {}",
                    fmt::join(receipt.also, ", ")));
  }
  ASSIGN_OR_RETURN(const ModelArgument model, ResolveModelArgument(settings, named));
  ASSIGN_OR_RETURN(const std::string weights, WeightsDigest(model.folder));
  if (weights != receipt.weights)
    return Different(fmt::format("weights: expected {}, found {}", receipt.weights, weights));
  fmt::print("weights    {}\n", weights);

  auto profiled = ProfileSettings(settings, receipt);
  if (!profiled) {
    return Unverifiable(
        fmt::format("the profiles differ: this program lacks {}", profiled.error().message));
  }
  auto config = MakeEngineConfig(*profiled, model);
  if (!config) return tl::unexpected(std::move(config).error());
  const auto request_file = settings.Text("receipt-request");
  std::unique_ptr<Serving> serving;
  std::unique_ptr<Engine> alone;
  Status loaded;
  if (request_file) {
    ServerConfig server = MakeServerConfig(*profiled, model);
    server.host = "127.0.0.1";
    server.port = 0;
    server.disable_access_log = true;
    ASSIGN_OR_RETURN(serving, Serving::Bind(server));
    loaded = serving->Load(*config, model, LoadReport::kNowhere);
  } else {
    auto created = Engine::Create(*config, {});
    if (created)
      alone = *std::move(created);
    else
      loaded = tl::unexpected(created.error());
  }
  if (!loaded) {
    const std::string isa = ProfileText(receipt, "isa");
    if (loaded.error().message.find(isa) == std::string::npos || isa.empty())
      return tl::unexpected(loaded.error());
    return Unverifiable(fmt::format("the profiles differ: the receipt is of {}, and {}", isa,
                                    loaded.error().message));
  }
  Engine& engine = serving != nullptr ? serving->engine() : *alone;
  const std::string difference =
      DifferenceOfProfiles(receipt.profile, ArithmeticProfile(*profiled, engine.info()));
  if (!difference.empty()) {
    return Unverifiable(fmt::format(
        "the profiles differ ({}): equal bits are promised within a profile", difference));
  }
  fmt::print("profile    {}\n", json::Write(receipt.profile));

  std::vector<std::vector<int32_t>> prompts;
  if (request_file) {
    ASSIGN_OR_RETURN(const json::Value body, ReadJson(*request_file));
    ASSIGN_OR_RETURN(prompts, TokenizeRequest(serving->server().port(), body));
  } else {
    for (const ReceiptPrompt& prompt : receipt.prompts) prompts.push_back(prompt.token_ids);
  }
  return CompareAnswers(engine, receipt, std::move(prompts));
}

Result<int> RunReceiptKey(const options::Settings& settings) {
  const auto& words = settings.positionals();
  if (words.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "expected a file for the private key: sluice receipt-key FILE", "receipts");
  }
  RETURN_IF_ERROR(MakeKeyPair(words[0]));
  ASSIGN_OR_RETURN(const SigningKey key, SigningKey::LoadPrivate(words[0]));
  fmt::print("{}: the private key, for `sluice serve --receipts {}`\n", words[0], words[0]);
  fmt::print("{}.pub: the public key, ed25519:{}, for `sluice verify --public-key`\n", words[0],
             key.public_hex());
  return 0;
}

}  // namespace sluice::cli
