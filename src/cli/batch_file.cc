#include "cli/batch_file.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/firewall.h"
#include "base/log.h"
#include "base/write_error.h"
#include "cli/write_file.h"

namespace sluice::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{64} << 20;
constexpr int64_t kLinesAhead = 4;  // maximum number of lines per worker that are read ahead of the
                                    // written ones

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

std::string RandomName(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

json::Value Record(const std::string& custom_id, int status) {
  json::Value response{json::Value::Object{}};
  response.Set("status_code", json::Value(status));
  response.Set("request_id", json::Value(RandomName("vllm-batch-")));
  json::Value record{json::Value::Object{}};
  record.Set("id", json::Value(RandomName("vllm-")));
  record.Set("custom_id", json::Value(custom_id));
  record.Set("response", std::move(response));
  return record;
}

std::string Finish(json::Value record, json::Value body, json::Value error) {
  json::Value response = *record.Find("response");
  response.Set("body", std::move(body));
  record.Set("response", std::move(response));
  record.Set("error", std::move(error));
  return json::Write(record);
}

enum class LineEnd { kLine, kInput, kTooLong };

// Like std::getline, but stops at kMaxLineBytes, because a line without an end, such as one read
// from a device, must not fill the memory.
LineEnd ReadLine(std::istream& in, std::string& line) {
  line.clear();
  std::streambuf& bytes = *in.rdbuf();
  while (in.good()) {
    int byte = EOF;
    try {
      byte = bytes.sbumpc();
    } catch (const std::ios_base::failure&) {  // a folder, or a failing disk
      in.setstate(std::ios::badbit);
    }
    if (byte == EOF) {
      in.setstate(std::ios::eofbit);
      break;
    }
    if (byte == '\n') return LineEnd::kLine;
    if (line.size() == kMaxLineBytes) return LineEnd::kTooLong;
    line.push_back(static_cast<char>(byte));
  }
  return line.empty() ? LineEnd::kInput : LineEnd::kLine;
}

bool IsBlank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

// The answer of a request that failed with this message; empty if there is no memory for it.
std::string ErrorOrNothing(const std::string& message) noexcept {
  try {
    return BatchError("", 500, message);
  } catch (...) {
    return {};
  }
}

// Passes lines to the workers and writes their answers in input order. A line that was taken is
// always answered, and if memory runs out while a line is read, reading ends with an error.
class Lines {
 public:
  Lines(std::istream& in, std::ostream& out, int64_t ahead)
      : in_(in), out_(out), no_memory_(BatchError("", 500, "out of memory")) {
    answers_.resize(static_cast<size_t>(ahead));
  }

  // Returns the next line and its number; false at the end. Blocks while too many answers wait for
  // an earlier one.
  bool Next(std::string& line, int64_t& number) noexcept {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return next_read_ - next_written_ < std::ssize(answers_); });
    // After a write error, further answers would be lost.
    while (out_ && too_long_ == 0 && !has_no_memory_) {
      LineEnd end = LineEnd::kInput;
      try {
        end = ReadLine(in_, line);
      } catch (...) {
        has_no_memory_ = true;  // the line is lost, so the file is not answered as a whole
        break;
      }
      if (end == LineEnd::kInput) break;
      ++lines_;
      if (end == LineEnd::kTooLong) too_long_ = lines_;
      if (end == LineEnd::kTooLong || IsBlank(line)) continue;
      number = next_read_++;
      return true;
    }
    return false;
  }

  // `answer`: empty if there was no memory for it.
  void Put(int64_t number, std::string answer, bool failed) noexcept {
    const std::lock_guard lock(mutex_);
    totals_.requests += 1;
    totals_.failed += failed;
    AnswerOf(number) = {.text = std::move(answer), .is_there = true};
    while (AnswerOf(next_written_).is_there) {
      const std::string& text = AnswerOf(next_written_).text;
      errno = 0;
      out_ << (text.empty() ? no_memory_ : text) << '\n';
      if (!out_ && write_error_ == 0) write_error_ = errno;
      AnswerOf(next_written_) = {};
      ++next_written_;
    }
    room_.notify_all();
  }

  const BatchTotals& totals() const { return totals_; }
  // errno of the first write that failed; 0 if none has failed.
  int write_error() const { return write_error_; }
  // Number of the line that exceeded the limit and therefore ended reading; 0 if none did.
  int64_t too_long() const { return too_long_; }
  // Number of the line that could not be read for lack of memory, which ended reading; 0: none.
  int64_t unread() const { return has_no_memory_ ? lines_ + 1 : 0; }

 private:
  struct Answer {
    std::string text;
    bool is_there = false;
  };
  // The answers from next_written_ on take turns in the places.
  Answer& AnswerOf(int64_t number) {
    return answers_[static_cast<size_t>(number % std::ssize(answers_))];
  }

  std::istream& in_;
  std::ostream& out_;
  const std::string no_memory_;
  std::mutex mutex_;
  std::condition_variable room_;
  int64_t lines_ = 0;
  int64_t too_long_ = 0;
  int write_error_ = 0;
  int64_t next_read_ = 0;
  int64_t next_written_ = 0;
  bool has_no_memory_ = false;
  std::vector<Answer> answers_;
  BatchTotals totals_;
};

}  // namespace

Status ParseBatchRequest(std::string_view line, BatchRequest& request) {
  if (line.size() > kMaxLineBytes)
    return Bad(
        fmt::format("the line has {} bytes, at most {} are allowed", line.size(), kMaxLineBytes));
  auto object = json::Parse(line);
  if (!object) return Bad("the line is not JSON: " + object.error().message);
  if (!object->is_object()) return Bad("the line is not a JSON object");
  const auto text = [&](std::string_view key) -> std::string {
    const json::Value* value = object->Find(key);
    return value != nullptr && value->is_string() ? value->as_string() : "";
  };
  request.custom_id = text("custom_id");
  if (request.custom_id.empty()) return Bad("custom_id: expected a text");
  if (text("method") != "POST")
    return Bad(fmt::format("method: expected POST, found '{}'", text("method")));
  request.path = text("url");
  constexpr std::string_view kPaths[] = {"/v1/chat/completions",
                                         "/v1/completions",
                                         "/v1/embeddings",
                                         "/pooling",
                                         "/classify",
                                         "/score",
                                         "/v1/score",
                                         "/rerank",
                                         "/v1/rerank",
                                         "/v2/rerank"};
  if (std::find(std::begin(kPaths), std::end(kPaths), request.path) == std::end(kPaths)) {
    return Bad(
        fmt::format("url: expected one of {}, found '{}'", fmt::join(kPaths, ", "), request.path));
  }
  const json::Value* body = object->Find("body");
  if (body == nullptr || !body->is_object()) return Bad("body: expected a JSON object");
  const json::Value* stream = body->Find("stream");
  if (stream != nullptr && stream->is_bool() && stream->as_bool())
    return Bad("body.stream: a batch has no streams; omit it");
  request.body = json::Write(*body);
  return {};
}

std::string BatchAnswer(const std::string& custom_id, int status, const json::Value& body) {
  json::Value record = Record(custom_id, status);
  if (status == 200) return Finish(std::move(record), body, json::Value());
  return Finish(std::move(record), json::Value(), body);
}

std::string BatchError(const std::string& custom_id, int status, const std::string& message) {
  json::Value error{json::Value::Object{}};
  error.Set("message", json::Value(message));
  error.Set("type", json::Value(status == 400 ? "BadRequestError" : "InternalServerError"));
  error.Set("param", json::Value());
  error.Set("code", json::Value(status));
  json::Value body{json::Value::Object{}};
  body.Set("error", std::move(error));
  return BatchAnswer(custom_id, status, body);
}

Result<BatchTotals> RunBatchFile(const std::string& input, const std::string& output, int workers,
                                 const BatchWork& answer) {
  std::ifstream in(input);
  if (!in) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("--input-file {}: {}", input, std::strerror(errno)), "input-file");
  }
  // Pipes, devices and links (/dev/stdout) are written directly, because renaming a file onto them
  // would replace them.
  std::error_code error;
  const auto kind = std::filesystem::symlink_status(output, error).type();
  const bool in_place = kind != std::filesystem::file_type::not_found &&
                        kind != std::filesystem::file_type::regular &&
                        kind != std::filesystem::file_type::directory;
  const std::string unfinished = in_place ? output : output + ".part";
  errno = 0;
  std::ofstream out(unfinished, std::ios::trunc);
  if (!out) return tl::unexpected<Error>(WriteFailure("output-file", unfinished, errno));
  // The first use of the JSON library allocates in functions that are noexcept. On a thread, lack
  // of memory would end the program there instead of one request.
  static_cast<void>(json::Parse("{}"));
  Lines lines(in, out, int64_t{workers} * kLinesAhead);
  const auto work = [&] {
    std::string line;
    int64_t number = 0;
    while (lines.Next(line, number)) {
      bool failed = false;
      std::string text;
      try {
        text = answer(line, failed);
      } catch (...) {
        failed = true;
        text = ErrorOrNothing(CaughtMessage());
      }
      lines.Put(number, std::move(text), failed);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(workers));
  std::optional<std::string> refusal;
  try {
    for (int i = 0; i < workers; ++i) threads.push_back(StartThread("batch", work));
  } catch (...) {
    refusal = CaughtMessage();
  }
  if (threads.empty()) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("no thread for requests can be started: {}", refusal.value_or("")));
  }
  for (std::thread& thread : threads) thread.join();
  // Only now: if memory for the message runs out while threads run, the program ends.
  if (refusal) {
    LOG_WARNING("batch", "only {} of {} threads for requests can be started: {}", threads.size(),
                workers, *refusal);
  }

  errno = 0;
  const bool written = out.good();
  out.close();
  const int close_error = written && !out ? errno : 0;
  // A folder can be opened, and a disk can fail, so an error must be distinguished from the end of
  // the file.
  if (in.bad()) {
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format(
            "--input-file {}: reading failed after {} requests; the answers so far are in {}",
            input, lines.totals().requests, unfinished),
        "input-file");
  }
  if (lines.too_long() != 0) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("--input-file {}: line {} has more than {} bytes; expected one JSON "
                            "object per line; the answers so far are in {}",
                            input, lines.too_long(), kMaxLineBytes, unfinished),
                "input-file");
  }
  if (lines.unread() != 0) {
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("--input-file {}: memory ran out while line {} was read; the answers so far "
                    "are in {}",
                    input, lines.unread(), unfinished),
        "input-file");
  }
  error.clear();
  if (out && !in_place) std::filesystem::rename(unfinished, output, error);
  if (!out || error) {
    const int number = error ? error.value() : close_error != 0 ? close_error : lines.write_error();
    const std::string why = number == 0 ? "" : fmt::format(" ({})", std::strerror(number));
    return Fail(
        WriteErrorCode(number, ErrorCode::kInternal),
        fmt::format("--output-file {}: writing the answers failed{}; the answers so far are in {}",
                    output, why, unfinished),
        "output-file");
  }
  return lines.totals();
}

}  // namespace sluice::cli
