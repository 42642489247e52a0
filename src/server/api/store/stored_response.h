// A response of /v1/responses that can be fetched later.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// Returns `body`, the JSON of a response, with another `status` and, unless `message` is empty,
// with this error.
std::string WithStatus(const std::string& body, std::string_view status, std::string_view message);

// Whether the texts of a stored response are the JSON that their readers expect.
bool IsWellFormed(std::string_view messages, std::string_view input_items, std::string_view body);

// A response. If it is generated in the background, it also stores the events of its stream for
// clients that connect later. Thread safety: all methods may be called from any thread.
class StoredResponse {
 public:
  struct Content {
    std::string id;
    std::string owner;                  // result of ResponseStore::OwnerOf(); "": accessible
                                        // without a key
    std::string messages;               // JSON of the conversation, without instructions
    std::string input_items;            // JSON of a list
    std::string body;                   // JSON of the response
    std::vector<std::string> item_ids;  // ids of its output items
  };
  // `is_over`: the response is complete; otherwise it is being generated in the background.
  StoredResponse(Content content, bool is_over)
      : id_(std::move(content.id)),
        owner_(std::move(content.owner)),
        messages_(std::move(content.messages)),
        input_items_(std::move(content.input_items)),
        background_(!is_over),
        body_(std::move(content.body)),
        item_ids_(std::move(content.item_ids)),
        is_over_(is_over) {}

  const std::string& id() const { return id_; }
  const std::string& owner() const { return owner_; }
  const std::string& messages() const { return messages_; }
  const std::string& input_items() const { return input_items_; }
  bool background() const { return background_; }
  std::string body() const;
  std::vector<std::string> item_ids() const;
  bool is_over() const;
  // Approximate size in memory.
  uint64_t bytes() const;

  // --- While it is being generated. Once it is over, the JSON is constant.

  void SetBody(std::string body, std::vector<std::string> item_ids, bool is_over);
  // Ends the response early with `status` and the error `message` ("": none), and appends a last
  // event with both. Returns false if the response was already over.
  bool End(std::string_view status, std::string_view message);
  // Sets the callback of End(), which is called once; immediately if End() was called before. Null:
  // no callback.
  void OnEnd(std::function<void()> call);

  // --- Server-sent events, in wire format.

  void AddEvent(std::string_view event);
  void EndEvents();
  // Returns the event with this number, if it was added.
  std::optional<std::string> Event(size_t number) const;
  // Whether the events have ended after at most `number` events.
  bool EndsAt(size_t number) const;
  // Calls `call` now and after every change, until it returns false. `call` must not call Watch()
  // or a method that changes this object.
  void Watch(std::function<bool()> call);

 private:
  void Notify();

  const std::string id_;
  const std::string owner_;
  const std::string messages_, input_items_;
  const bool background_;
  mutable Mutex mutex_;
  std::string body_ GUARDED_BY(mutex_);
  std::vector<std::string> item_ids_ GUARDED_BY(mutex_);
  bool is_over_ GUARDED_BY(mutex_);
  bool has_ended_early_ GUARDED_BY(mutex_) = false;
  std::function<void()> on_end_ GUARDED_BY(mutex_);
  std::string events_ GUARDED_BY(mutex_);
  std::vector<size_t> event_ends_ GUARDED_BY(mutex_);  // offset in `events_` at which each event
                                                       // ends
  bool events_end_ GUARDED_BY(mutex_) = false;
  Mutex watch_mutex_;  // held while watchers are called
  std::vector<std::function<bool()>> watchers_ GUARDED_BY(watch_mutex_);
};

}  // namespace sluice
