#include "server/api/response_store.h"

#include <algorithm>

namespace sluice {
namespace {

// Of a response, besides its texts.
constexpr uint64_t kOverheadBytes = 1024;
constexpr uint64_t kItemBytes = 256;

}  // namespace

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
    is_over_ = events_end_ = has_ended_early_ = true;
    call.swap(on_end_);
    if (Result<json::Value> body = json::Parse(body_); body && body->is_object()) {
      body->Set("status", status);
      if (!message.empty()) {
        body->Set("error",
                  json::Value(json::Value::Object{{"code", "server_error"}, {"message", message}}));
      }
      body_ = json::Write(*body);
    }
  }
  if (call) call();
  Notify();
  return true;
}

void StoredResponse::OnEnd(std::function<void()> call) {
  std::function<void()> dropped;  // outside of the lock: it may hold the last of a generation
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

bool ResponseStore::Add(std::shared_ptr<StoredResponse> response) {
  const uint64_t bytes = response->bytes();
  const MutexLock lock(mutex_);
  if (const auto found = by_id_.find(response->id()); found != by_id_.end()) {
    if (!found->second->response->is_over()) return false;
    Erase(found->second);
  }
  if (!MakeRoom(bytes, 1)) return false;
  bytes_ += bytes;
  entries_.push_back({std::move(response), bytes, {}});
  const auto entry = std::prev(entries_.end());
  by_id_.emplace(entry->response->id(), entry);
  IndexItems(*entry);
  return true;
}

bool ResponseStore::Update(const StoredResponse& response) {
  const uint64_t bytes = response.bytes();
  const MutexLock lock(mutex_);
  const auto found = by_id_.find(response.id());
  if (found == by_id_.end() || found->second->response.get() != &response) return true;
  Entry& entry = *found->second;
  bytes_ += bytes - entry.bytes;
  entry.bytes = bytes;
  IndexItems(entry);
  return MakeRoom(0, 0);
}

std::shared_ptr<StoredResponse> ResponseStore::Find(const std::string& id, uint64_t owner) const {
  const MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response->owner() != owner) return nullptr;
  return found->second->response;
}

std::shared_ptr<StoredResponse> ResponseStore::FindByItem(const std::string& item_id,
                                                          uint64_t owner) const {
  std::string id;
  {
    const MutexLock lock(mutex_);
    const auto found = by_item_.find(item_id);
    if (found == by_item_.end()) return nullptr;
    id = found->second;
  }
  return Find(id, owner);
}

void ResponseStore::Remove(const StoredResponse& response) {
  const MutexLock lock(mutex_);
  const auto found = by_id_.find(response.id());
  if (found != by_id_.end() && found->second->response.get() == &response) Erase(found->second);
}

void ResponseStore::Stop() {
  std::vector<std::shared_ptr<StoredResponse>> all;
  {
    const MutexLock lock(mutex_);
    for (const Entry& entry : entries_) all.push_back(entry.response);
  }
  for (const auto& response : all) response->End("cancelled", "");
}

uint64_t ResponseStore::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

void ResponseStore::Erase(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  for (const std::string& item : entry->item_ids) by_item_.erase(item);
  by_id_.erase(entry->response->id());
  entries_.erase(entry);
}

// For so much more than there is. False where what runs leaves none.
bool ResponseStore::MakeRoom(uint64_t bytes, size_t count) {
  const auto fits = [&]() REQUIRES(mutex_) {
    return bytes_ + bytes <= max_bytes_ && entries_.size() + count <= kMaxResponses;
  };
  if (bytes > max_bytes_) return false;
  for (auto entry = entries_.begin(); entry != entries_.end() && !fits();) {
    const auto next = std::next(entry);
    if (entry->response->is_over()) Erase(entry);
    entry = next;
  }
  return fits();
}

void ResponseStore::IndexItems(Entry& entry) {
  if (!entry.item_ids.empty()) return;
  entry.item_ids = entry.response->item_ids();
  for (const std::string& item : entry.item_ids) by_item_.emplace(item, entry.response->id());
}

}  // namespace sluice
