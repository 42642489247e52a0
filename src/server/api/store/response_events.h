// The output items of a response, and the server-sent events that stream them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// One item of a response's output.
struct OutputItem {
  enum class Kind { kMessage, kReasoning, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string call_id, name;  // of a call
  std::string space;          // the namespace of the function that is called; "" for none
  std::string text;           // of a call its arguments
  std::string logprobs;       // JSON of the elements of the list; empty: none are shown
  bool shows_logprobs = false;
  std::string status = "in_progress";  // then "completed", or "incomplete" where it was cut
};

void AppendOutputItem(std::string& out, const OutputItem& item);

// Writes the events in their order and numbers them. Thread safety: none.
class ResponseEvents {
 public:
  // `send` receives each event in wire format, with its number.
  using Send = std::function<void(int64_t number, std::string_view event)>;
  explicit ResponseEvents(Send send) : send_(std::move(send)) {}

  // "response.created" and its like; `response` is the JSON of the response.
  void Response(std::string_view type, std::string_view response);
  // The next item begins. REQUIRES: none is open.
  void Open(const OutputItem& item);
  // `text` is more of the open item; `logprobs` the elements of the list for it.
  void Delta(const OutputItem& item, std::string_view text, std::string_view logprobs);
  // The open item has ended.
  void Close(const OutputItem& item);

 private:
  void Emit(std::string_view type, std::string body);
  std::string Place(const OutputItem& item) const;

  const Send send_;
  int64_t number_ = 0;
  int64_t output_index_ = 0;  // of the open item, else of the next
};

// Sends the events that stream a complete `response`.
void ReplayResponse(const json::Value& response, ResponseEvents& events);

// The type of the last event of a response's stream: "response.completed", "response.incomplete",
// "response.failed" or "response.cancelled".
std::string LastEventType(std::string_view status);

// One event about a whole response, in wire format. `response`: its JSON.
std::string ResponseEvent(int64_t number, std::string_view type, std::string_view response);

}  // namespace sluice
