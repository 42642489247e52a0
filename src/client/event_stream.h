// An incremental parser of server-sent events.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sluice {

class EventStream {
 public:
  // Takes the next bytes, which may be split anywhere. Calls `on_event` with the data of each
  // complete event (several data lines are joined by newlines). Returns false as soon as `on_event`
  // does; do not call Take again after that.
  bool Take(std::string_view bytes, const std::function<bool(std::string_view data)>& on_event);

 private:
  bool TakeLine(std::string_view line, const std::function<bool(std::string_view data)>& on_event);

  std::string line_;  // an incomplete line
  std::string data_;
  bool has_data_ = false;
};

}  // namespace sluice
