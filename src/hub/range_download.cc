#include "hub/range_download.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <list>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "hub/repository_cache.h"

namespace sluice {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int kConnections = 8;
constexpr int kMaxFileRedirects = 10;
// Gives up after this many wrong responses.
constexpr int kMaxWrongAnswers = 3;
// If a single connection is at least this fast (bytes per second), more would not be faster.
constexpr double kFastBytesPerSecond = 100e6;
constexpr std::chrono::seconds kMeasured(1);
// After less progress than this, the next retry waits first.
constexpr int64_t kProgressBytes = int64_t{64} << 10;

struct ContentRange {
  int64_t begin = -1;
  int64_t total = -1;
};

// Parses a value like "bytes 0-9/20".
ContentRange ParseContentRange(std::string_view text) {
  ContentRange range;
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return range;
  text.remove_prefix(kUnit.size());
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return range;
  std::from_chars(text.data(), text.data() + slash, range.begin);
  std::from_chars(text.data() + slash + 1, text.data() + text.size(), range.total);
  return range;
}

// A part of the content. The first one in the list is written as it arrives; the others are
// buffered.
struct Piece {
  int64_t end = 0;       // exclusive; may decrease during the transfer
  int64_t position = 0;  // offset of the next byte to receive
  int64_t skip = 0;      // number of bytes to skip if the response is not partial
  bool running = false;
  bool content = false;  // whether the response body is content rather than an error message
  std::string kept = "";
};

struct Failure {
  std::string problem;
  std::optional<int64_t> wait = std::nullopt;  // the delay in seconds that the server requests
  bool slow = false;                           // whether the sender was below the minimum speed
  bool certain = false;                        // whether a retry would also fail
  bool refused = false;                        // whether the URL is invalid or has expired
};

class Download {
 public:
  Download(HubClient& hub, RangeDownload download)
      : hub_(hub),
        request_(std::move(download)),
        content_(*request_.content),
        retries_("downloading " + request_.source.name) {}

  Status Run() {
    while (content_.written() < size() && !error_) {
      StartPieces();
      hub_.transfers().Wait(100);
      WriteFinished();
      if (failure_ && !error_) TryAgain();
      AddConnections();
      request_.on_progress(content_.written());
    }
    hub_.transfers().CancelAll();
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return {};
  }

 private:
  int64_t size() const { return request_.source.size; }
  bool IsFirst(const Piece& piece) const { return &piece == &pieces_.front(); }

  void StartPieces() {
    while (!error_ && static_cast<int>(pieces_.size()) < connections_) {
      const int64_t begin = pieces_.empty() ? content_.appended() : pieces_.back().end;
      if (begin >= size()) break;
      const int64_t end = connections_ == 1 ? size() : std::min(size(), begin + kPieceBytes);
      pieces_.push_back({.end = end, .position = begin});
      if (pieces_.size() > 1) pieces_.back().kept.reserve(static_cast<size_t>(end - begin));
    }
    for (Piece& piece : pieces_) {
      if (!piece.running && piece.position < piece.end) Start(piece);
    }
  }

  void Start(Piece& piece) {
    piece.running = true;
    piece.skip = 0;
    TransferRequest request{.url = request_.source.url,
                            .token = hub_.TokenFor(request_.source.url),
                            .range_begin = piece.position,
                            .range_end = piece.end};
    request.on_head = [this, &piece](const HttpHead& head) { return TakeHead(piece, head); };
    request.on_body = [this, &piece](std::string_view part) { return TakeBody(piece, part); };
    hub_.transfers().Start(std::move(request), [this, &piece](const HttpOutcome& outcome) {
      piece.running = false;
      End(piece, outcome);
    });
  }

  // Whether the response contains the requested part of the content. If not, sets `wrong_` to the
  // reason.
  bool TakeHead(Piece& piece, const HttpHead& head) {
    piece.content = head.status == 206 || head.status == 200;
    if (head.status == 206) {
      const ContentRange range = ParseContentRange(head.Find("content-range"));
      if (range.begin == piece.position && range.total == size()) {
        ranges_ = true;
        return true;
      }
      wrong_ = fmt::format("expected the bytes from {} of {}, found Content-Range: {}",
                           piece.position, size(), head.Find("content-range"));
      return false;
    }
    if (head.status != 200) return true;
    const std::string_view length = head.Find("content-length");
    if (!length.empty() && length != std::to_string(size())) {
      wrong_ = fmt::format(
          "expected {} bytes, found {}{}", size(), length,
          head.Find("content-type").starts_with("text/html") ? " of a page (text/html)" : "");
      return false;
    }
    if (!IsFirst(piece)) {
      wrong_ = "expected a part of the file, found all of it";
      return false;
    }
    piece.skip = piece.position;
    return true;
  }

  bool TakeBody(Piece& piece, std::string_view part) {
    const int64_t skipped = std::min<int64_t>(piece.skip, static_cast<int64_t>(part.size()));
    piece.skip -= skipped;
    part.remove_prefix(static_cast<size_t>(skipped));
    const auto take =
        static_cast<size_t>(std::min<int64_t>(piece.end - piece.position, std::ssize(part)));
    if (piece.content) {
      if (IsFirst(piece)) {
        if (!Written(content_.Append(part.substr(0, take)))) return false;
      } else {
        piece.kept += part.substr(0, take);
      }
      piece.position += static_cast<int64_t>(take);
      received_ += static_cast<int64_t>(take);
    }
    return take == part.size();
  }

  // Returns whether `error_number` is 0; if not, records the error.
  bool Written(int error_number) {
    if (error_number != 0) error_ = CacheError("write", request_.source.name, error_number).value();
    return error_number == 0;
  }

  // Called when a transfer of `piece` has ended, complete or not.
  void End(Piece& piece, const HttpOutcome& outcome) {
    if (error_ || piece.position == piece.end) return;
    const int status = outcome.head.status;
    if (outcome.problem.empty() && !outcome.redirect.empty() && status >= 300 && status < 400) {
      Follow(outcome);
      return;
    }
    Failure failure{.problem = std::exchange(wrong_, ""), .wait = WaitOf(outcome)};
    const bool wrong = !failure.problem.empty();
    if (!wrong) {
      failure.problem = piece.content && outcome.problem.empty() ? "the answer ended too early"
                                                                 : ProblemOf(outcome);
    }
    failure.slow = outcome.slow;
    failure.certain = outcome.certain || (wrong && ++wrong_answers_ >= kMaxWrongAnswers);
    failure.refused = outcome.problem.empty() && status >= 400 && !MayChange(status);
    failure_ = std::move(failure);
  }

  // Retries. Several connections that break at the same time count as one failure.
  void TryAgain() {
    const Failure failure = *std::exchange(failure_, std::nullopt);
    // Very few bytes do not count as progress; otherwise a slow sender could continue forever.
    if (received_ >= (failure.slow ? kProgressBytes : 1))
      retries_.Reset(/*at_once=*/received_ >= kProgressBytes);
    received_ = 0;
    if (failure.certain || !retries_.Again(failure.problem, failure.wait)) {
      error_ = Error{ErrorCode::kUnavailable,
                     fmt::format("{} of {} bytes of {} came from {}, then: {}. They are kept: the "
                                 "same command continues with them",
                                 content_.written(), size(), request_.source.name,
                                 OriginOf(request_.source.url), failure.problem),
                     request_.source.name};
    } else if (failure.refused) {  // the URLs of content stores expire
      auto address = request_.find_again();
      if (address) {
        request_.source.url = *std::move(address);
      } else {
        error_ = std::move(address).error();
      }
    }
  }

  void Follow(const HttpOutcome& outcome) {
    const std::string& next = outcome.redirect;
    const bool weaker = request_.source.url.starts_with("https:") && !next.starts_with("https:");
    if (++redirects_ <= kMaxFileRedirects && !weaker && !OriginOf(next).empty()) {
      request_.source.url = next;
      return;
    }
    error_ = Error{
        ErrorCode::kUnavailable,
        fmt::format("{}: {} leads to {}, {}", request_.source.name, OriginOf(request_.source.url),
                    OriginOf(next), weaker ? "without encryption" : "and so on without end"),
        request_.source.name};
  }

  // Writes the buffered content that comes next, and flushes.
  void WriteFinished() {
    while (!pieces_.empty() && !error_) {
      Piece& first = pieces_.front();
      if (!first.kept.empty()) {
        if (!Written(content_.Append(first.kept))) return;
        std::string().swap(first.kept);
      }
      if (first.position < first.end || first.running) break;
      pieces_.pop_front();
    }
    if (!error_) Written(content_.Flush());
  }

  // Opens more connections if a single one is slow.
  void AddConnections() {
    const auto now = std::chrono::steady_clock::now();
    if (connections_ > 1 || !ranges_ || now - measured_ < kMeasured) return;
    const double seconds = std::chrono::duration<double>(now - measured_).count();
    const double rate = static_cast<double>(content_.written() - measured_written_) / seconds;
    measured_ = now;
    measured_written_ = content_.written();
    if (rate >= kFastBytesPerSecond || size() - measured_written_ < 2 * kPieceBytes ||
        pieces_.empty())
      return;
    pieces_.front().end = std::min(size(), pieces_.front().position + kPieceBytes);
    connections_ = kConnections;
  }

  HubClient& hub_;
  RangeDownload request_;
  ContentWriter& content_;
  Retries retries_;
  int64_t received_ = 0;  // number of bytes since the last failure
  std::list<Piece> pieces_;
  int connections_ = 1;
  bool ranges_ = false;  // whether the server supports partial responses
  int redirects_ = 0;
  int wrong_answers_ = 0;
  std::string wrong_;               // why TakeHead ended a transfer
  std::optional<Failure> failure_;  // what failed during the last Wait()
  std::optional<Error> error_;
  std::chrono::steady_clock::time_point measured_ = std::chrono::steady_clock::now();
  int64_t measured_written_ = content_.written();
};

}  // namespace

Status DownloadRanges(HubClient& hub, RangeDownload download) {
  return Download(hub, std::move(download)).Run();
}

}  // namespace sluice
