#include "eval/eval_client.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/owned_fd.h"

namespace sluice {
namespace {

// Returns a descriptor that becomes readable after `seconds`; a client's connection can wait for
// that descriptor.
Result<OwnedFd> TimerOf(double seconds) {
  ASSIGN_OR_RETURN(OwnedFd timer,
                   OwnFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create"));
  itimerspec time{};
  const double whole = std::floor(seconds);
  time.it_value.tv_sec = static_cast<time_t>(whole);
  time.it_value.tv_nsec = static_cast<long>((seconds - whole) * 1e9);
  if (timerfd_settime(timer.get(), 0, &time, nullptr) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--timeout {:g}: {}", seconds, std::strerror(errno)), "timeout");
  }
  return timer;
}

std::string RequestBody(const json::Value& prompt, const EvalRequestOptions& options) {
  json::Value body{json::Value::Object{}};
  body.Set(options.chat ? "messages" : "prompt", prompt);
  body.Set("model", json::Value(options.model));
  body.Set("max_tokens", json::Value(options.max_tokens));
  body.Set("temperature", json::Value(0));
  json::Value::Array stop;
  for (const std::string& text : options.stop) stop.emplace_back(text);
  body.Set("stop", json::Value(std::move(stop)));
  body.Set("seed", json::Value(options.seed));
  if (options.add_special_tokens && !options.chat)
    body.Set("add_special_tokens", json::Value(*options.add_special_tokens));
  return json::Write(body);
}

// Returns the text of the first choice; nullopt if there is none.
std::optional<std::string> AnswerText(const json::Value& body, bool chat) {
  const json::Value* choices = body.Find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty())
    return std::nullopt;
  const json::Value& choice = choices->as_array().front();
  const json::Value* place = chat ? choice.Find("message") : &choice;
  const json::Value* text = place == nullptr ? nullptr : place->Find(chat ? "content" : "text");
  if (text == nullptr) return std::nullopt;
  if (text->is_null()) return "";  // the answer is empty
  if (!text->is_string()) return std::nullopt;
  return text->as_string();
}

Result<std::string> AskOnce(const HttpClient& client, const std::string& request,
                            const EvalRequestOptions& options) {
  auto timer = TimerOf(options.timeout_seconds);
  if (!timer) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("cannot make a timer: {}; or lower --num-concurrent", timer.error().message));
  }
  auto response = client.PostStream(
      options.chat ? "/v1/chat/completions" : "/v1/completions", request,
      [](std::string_view) { return false; }, timer->get());
  if (!response && response.error().code == ErrorCode::kCancelled) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("no answer in {:g} s (--timeout)", options.timeout_seconds));
  }
  if (!response) return tl::unexpected<Error>(std::move(response).error());
  auto body = json::Parse(response->body);
  if (response->status != 200) {
    const json::Value* error = body ? body->Find("error") : nullptr;
    const json::Value* words = error != nullptr ? error->Find("message") : nullptr;
    const bool passing =
        response->status >= 500 || response->status == 429 || response->status == 408;
    return Fail(
        passing                   ? ErrorCode::kUnavailable
        : response->status == 404 ? ErrorCode::kNotFound
                                  : ErrorCode::kInvalidArgument,
        fmt::format("the server answered with {}: {}", response->status,
                    words != nullptr && words->is_string() ? words->as_string()
                                                           : response->body.substr(0, 300)));
  }
  auto text = body ? AnswerText(*body, options.chat) : std::nullopt;
  if (!text) {
    return Fail(ErrorCode::kUnavailable,
                "the server's answer has no text: " + response->body.substr(0, 300));
  }
  return *std::move(text);
}

// `wait` waits for the given time and returns whether to retry.
Result<std::string> AskWithRetries(const HttpClient& client, const std::string& request,
                                   const EvalRequestOptions& options,
                                   const std::function<bool(std::chrono::milliseconds)>& wait) {
  constexpr auto kFirstPause = std::chrono::milliseconds(200);
  constexpr auto kLongestPause = std::chrono::milliseconds(5000);
  auto pause = kFirstPause;
  for (int retry = 0;; ++retry) {
    auto answer = AskOnce(client, request, options);
    if (answer || answer.error().code != ErrorCode::kUnavailable || retry >= options.max_retries ||
        !wait(pause)) {
      return answer;
    }
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace

Result<std::vector<std::string>> AskPrompts(const HttpClient& client,
                                            const std::vector<json::Value>& prompts,
                                            const EvalRequestOptions& options,
                                            const EvalProgress& progress) {
  std::vector<std::string> answers(prompts.size());
  std::mutex mutex;  // guards all members below
  size_t next = 0;
  int64_t done = 0;
  std::optional<Error> failed;
  std::condition_variable over;  // notified when `failed` is set

  const auto wait = [&](std::chrono::milliseconds pause) {
    std::unique_lock lock(mutex);
    return !over.wait_for(lock, pause, [&] { return failed.has_value(); });
  };
  const auto work = [&] {
    while (true) {
      size_t mine;
      {
        const std::lock_guard lock(mutex);
        if (failed || next == prompts.size()) return;
        mine = next++;
      }
      auto answer = AskWithRetries(client, RequestBody(prompts[mine], options), options, wait);
      const std::lock_guard lock(mutex);
      if (!answer) {
        if (!failed) failed = std::move(answer).error().In(fmt::format("question {}", mine + 1));
        over.notify_all();
        return;
      }
      answers[mine] = *std::move(answer);
      progress(++done, static_cast<int64_t>(prompts.size()));
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t count =
        std::min<size_t>(prompts.size(), static_cast<size_t>(options.num_concurrent));
    for (size_t i = 0; i < count; ++i) threads.emplace_back(work);
  }
  if (failed) return tl::unexpected<Error>(*std::move(failed));
  return answers;
}

}  // namespace sluice
