#include "client/event_stream.h"

namespace sluice {

bool EventStream::Take(std::string_view bytes,
                       const std::function<bool(std::string_view data)>& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      line_ += bytes;
      return true;
    }
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (!line_.empty()) line = line_ += line;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool go_on = TakeLine(line, on_event);
    line_.clear();
    if (!go_on) return false;
  }
  return true;
}

bool EventStream::TakeLine(std::string_view line,
                           const std::function<bool(std::string_view data)>& on_event) {
  if (line.empty()) {
    const bool go_on = !has_data_ || on_event(data_);
    data_.clear();
    has_data_ = false;
    return go_on;
  }
  if (!line.starts_with("data:"))
    return true;  // ignores comments, and fields that the API does not use
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

}  // namespace sluice
