// The responses of /v1/responses that can be fetched later, in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"

namespace sluice {

// One response. One that runs in the background also has the events of its stream, for clients that
// follow it. Thread safety: all methods may be called from any thread.
class StoredResponse {
 public:
  struct Content {
    std::string id;
    uint64_t owner = 0;                 // ClientIdentity of who may have it; 0: everybody
    std::string messages;               // JSON: the chat that it answers, without instructions
    std::string input_items;            // JSON: a list
    std::string body;                   // its JSON
    std::vector<std::string> item_ids;  // of its output
  };
  // `is_over`: else it runs in the background.
  StoredResponse(Content content, bool is_over)
      : id_(std::move(content.id)),
        owner_(content.owner),
        messages_(std::move(content.messages)),
        input_items_(std::move(content.input_items)),
        background_(!is_over),
        body_(std::move(content.body)),
        item_ids_(std::move(content.item_ids)),
        is_over_(is_over) {}

  const std::string& id() const { return id_; }
  uint64_t owner() const { return owner_; }
  const std::string& messages() const { return messages_; }
  const std::string& input_items() const { return input_items_; }
  bool background() const { return background_; }
  std::string body() const;
  std::vector<std::string> item_ids() const;
  bool is_over() const;
  // What it holds, about.
  uint64_t bytes() const;

  // --- Of one that runs. Once it is over, its JSON does not change any more.

  void SetBody(std::string body, std::vector<std::string> item_ids, bool is_over);
  // It ends before it is complete, as `status`; `message` is its error, "" for none. Its events end
  // too. False if it was over.
  bool End(std::string_view status, std::string_view message);
  // `call` is called once by End(), at once if it has been ended; null: no more.
  void OnEnd(std::function<void()> call);

  // --- Events, as they go over the wire.

  void AddEvent(std::string_view event);
  void EndEvents();
  // The event of that number, if it has come.
  std::optional<std::string> Event(size_t number) const;
  // The events have ended, and there are no more than `number`.
  bool EndsAt(size_t number) const;
  // `call` is called whenever there is news, until it returns false. It must not call back.
  void Watch(std::function<bool()> call);

 private:
  void Notify();

  const std::string id_;
  const uint64_t owner_;
  const std::string messages_, input_items_;
  const bool background_;
  mutable Mutex mutex_;
  std::string body_ GUARDED_BY(mutex_);
  std::vector<std::string> item_ids_ GUARDED_BY(mutex_);
  bool is_over_ GUARDED_BY(mutex_);
  bool has_ended_early_ GUARDED_BY(mutex_) = false;
  std::function<void()> on_end_ GUARDED_BY(mutex_);
  std::string events_ GUARDED_BY(mutex_);
  std::vector<size_t> event_ends_ GUARDED_BY(mutex_);  // in `events_`
  bool events_end_ GUARDED_BY(mutex_) = false;
  Mutex watch_mutex_;  // held while watchers are called
  std::vector<std::function<bool()>> watchers_ GUARDED_BY(watch_mutex_);
};

// Where there is no room for more, the oldest that are over are forgotten. Thread safety: all
// methods may be called from any thread.
class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 65536;

  explicit ResponseStore(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Replaces one of the same id that is over. False where there is no room, or where one of that id
  // runs.
  bool Add(std::shared_ptr<StoredResponse> response);
  // Takes note of what `response` holds by now. False where there is no room for it.
  bool Update(const StoredResponse& response);
  // Null where there is none that `owner` may have.
  std::shared_ptr<StoredResponse> Find(const std::string& id, uint64_t owner) const;
  // The one whose output has the item.
  std::shared_ptr<StoredResponse> FindByItem(const std::string& item_id, uint64_t owner) const;
  void Remove(const StoredResponse& response);
  // Cancels what runs.
  void Stop();

  uint64_t bytes() const;
  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<StoredResponse> response;
    uint64_t bytes = 0;
    std::vector<std::string> item_ids;  // in by_item_
  };
  using Entries = std::list<Entry>;  // the oldest first

  void Erase(Entries::iterator entry) REQUIRES(mutex_);
  bool MakeRoom(uint64_t bytes, size_t count) REQUIRES(mutex_);
  void IndexItems(Entry& entry) REQUIRES(mutex_);

  const uint64_t max_bytes_;
  mutable Mutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Entries::iterator> by_id_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> by_item_ GUARDED_BY(mutex_);  // to a response's id
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
