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
  std::string call_id, name;  // only for kCall
  std::string space;          // namespace of the called function; "" if it has none
  std::string text;           // for kCall: its arguments
  std::string logprobs;       // JSON of the elements of "logprobs", without brackets
  bool shows_logprobs = false;
  // Changes to "completed", or to "incomplete" if the item was cut off.
  std::string status = "in_progress";
};

void AppendOutputItem(std::string& out, const OutputItem& item);

// Numbers the events consecutively and sends them in that order. Thread safety: none.
class ResponseEvents {
 public:
  // `send` receives each event in wire format, with its number.
  using Send = std::function<void(int64_t number, std::string_view event)>;
  explicit ResponseEvents(Send send) : send_(std::move(send)) {}

  // Sends "response.created" and similar events. `response`: the JSON of the response.
  void Response(std::string_view type, std::string_view response);
  // Starts the next item. REQUIRES: no item is open.
  void Open(const OutputItem& item);
  // Sends more `text` of the open item. `logprobs`: the list elements for this text.
  void Delta(const OutputItem& item, std::string_view text, std::string_view logprobs);
  // Ends the open item.
  void Close(const OutputItem& item);

 private:
  void Emit(std::string_view type, std::string body);
  std::string Place(const OutputItem& item) const;

  const Send send_;
  int64_t number_ = 0;
  int64_t output_index_ = 0;  // index of the open item, or else of the next one
};

// Sends the events that stream a complete `response`.
void ReplayResponse(const json::Value& response, ResponseEvents& events);

// Returns the type of the last event of a response's stream: "response.completed",
// "response.incomplete", "response.failed" or "response.cancelled".
std::string LastEventType(std::string_view status);

// Returns one event with a whole response, in wire format. `response`: its JSON.
std::string ResponseEvent(int64_t number, std::string_view type, std::string_view response);

}  // namespace sluice
