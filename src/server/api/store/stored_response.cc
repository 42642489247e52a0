#include "server/api/store/stored_response.h"

#include <algorithm>
#include <initializer_list>

#include "base/json.h"
#include "server/api/store/response_events.h"

namespace sluice {
namespace {

// Approximate bytes of a response and of an item, not counting their texts.
constexpr uint64_t kOverheadBytes = 1024;
constexpr uint64_t kItemBytes = 256;

// Whether `list` is a list of objects that each have texts with these names.
bool IsListOfObjects(const json::Value* list, std::initializer_list<std::string_view> names) {
  if (list == nullptr || !list->is_array()) return false;
  return std::ranges::all_of(list->as_array(), [&](const json::Value& object) {
    return object.is_object() && std::ranges::all_of(names, [&](std::string_view name) {
             const json::Value* text = object.Find(name);
             return text != nullptr && text->is_string();
           });
  });
}

bool IsListOfObjects(std::string_view text, std::initializer_list<std::string_view> names) {
  const Result<json::Value> list = json::Parse(text);
  return list && IsListOfObjects(&*list, names);
}

}  // namespace

bool IsWellFormed(std::string_view messages, std::string_view input_items, std::string_view body) {
  const Result<json::Value> response = json::Parse(body);
  return response && response->is_object() &&
         IsListOfObjects(response->Find("output"), {"type", "id"}) &&
         IsListOfObjects(messages, {"role"}) && IsListOfObjects(input_items, {"id"});
}

std::string WithStatus(const std::string& body, std::string_view status, std::string_view message) {
  Result<json::Value> response = json::Parse(body);
  if (!response || !response->is_object()) return body;
  response->Set("status", status);
  if (!message.empty()) {
    response->Set("error",
                  json::Value(json::Value::Object{{"code", "server_error"}, {"message", message}}));
  }
  return json::Write(*response);
}

std::string StoredResponse::body() const {
  const MutexLock lock(mutex_);
  return body_;
}

std::vector<std::string> StoredResponse::item_ids() const {
  const MutexLock lock(mutex_);
  return item_ids_;
}

bool StoredResponse::is_over() const {
  const MutexLock lock(mutex_);
  return is_over_;
}

uint64_t StoredResponse::bytes() const {
  const MutexLock lock(mutex_);
  return kOverheadBytes + id_.size() + messages_.size() + input_items_.size() + body_.size() +
         kItemBytes * item_ids_.size() + events_.capacity() +
         sizeof(size_t) * event_ends_.capacity();
}

void StoredResponse::SetBody(std::string body, std::vector<std::string> item_ids, bool is_over) {
  const MutexLock lock(mutex_);
  if (is_over_) return;
  body_ = std::move(body);
  item_ids_ = std::move(item_ids);
  is_over_ = is_over;
}

bool StoredResponse::End(std::string_view status, std::string_view message) {
  std::function<void()> call;
  {
    const MutexLock lock(mutex_);
    if (is_over_) return false;
    is_over_ = has_ended_early_ = true;
    call.swap(on_end_);
    body_ = WithStatus(body_, status, message);
    if (!std::exchange(events_end_, true)) {
      events_ +=
          ResponseEvent(static_cast<int64_t>(event_ends_.size()), LastEventType(status), body_);
      event_ends_.push_back(events_.size());
    }
  }
  if (call) call();
  Notify();
  return true;
}

void StoredResponse::OnEnd(std::function<void()> call) {
  std::function<void()> dropped;  // destroyed without the lock, because it may hold the last
                                  // reference to the generation
  {
    const MutexLock lock(mutex_);
    if (!has_ended_early_) {
      dropped = std::exchange(on_end_, std::move(call));
      return;
    }
  }
  if (call) call();
}

void StoredResponse::AddEvent(std::string_view event) {
  {
    const MutexLock lock(mutex_);
    if (events_end_) return;
    events_ += event;
    event_ends_.push_back(events_.size());
  }
  Notify();
}

void StoredResponse::EndEvents() {
  {
    const MutexLock lock(mutex_);
    events_end_ = true;
  }
  Notify();
}

std::optional<std::string> StoredResponse::Event(size_t number) const {
  const MutexLock lock(mutex_);
  if (number >= event_ends_.size()) return std::nullopt;
  const size_t begin = number == 0 ? 0 : event_ends_[number - 1];
  return events_.substr(begin, event_ends_[number] - begin);
}

bool StoredResponse::EndsAt(size_t number) const {
  const MutexLock lock(mutex_);
  return events_end_ && number >= event_ends_.size();
}

void StoredResponse::Watch(std::function<bool()> call) {
  const MutexLock lock(watch_mutex_);
  if (call()) watchers_.push_back(std::move(call));
}

void StoredResponse::Notify() {
  const MutexLock lock(watch_mutex_);
  std::erase_if(watchers_, [](const std::function<bool()>& call) { return !call(); });
}

}  // namespace sluice
