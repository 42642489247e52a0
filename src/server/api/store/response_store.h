// The responses of /v1/responses that can be fetched later: in memory and, if they must survive a
// restart, also in a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "server/api/store/response_database.h"
#include "server/api/store/stored_response.h"

namespace sluice {

// When the store is full, complete responses are removed: the oldest of the owner that holds most,
// by bytes or by number. So an owner that holds less than an equal share loses nothing to others. A
// response is refused if its owner, without its other complete responses, would still hold more
// than every owner that has complete ones to give up; nothing is removed for a refused response.
//
// With a file (KeepIn) each change is written before the call returns, so that a client that has
// its answer finds it again after a crash; events of a stream are not written. Find never waits for
// the disk. If a write fails (a full disk), the response stays in memory, and a warning is logged
// at most once a minute; failed removals from the file are repeated with the next change.
//
// Thread safety: all methods may be called from any thread; those that change the contents wait for
// the disk and for each other.
class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 65536;

  explicit ResponseStore(uint64_t max_bytes);

  // Also stores responses in a file of `folder`, and loads the existing ones; responses that were
  // incomplete when last written are loaded as failed. REQUIRES: the store is empty and not shared
  // yet. Errors: those of ResponseDatabase.
  Status KeepIn(const std::filesystem::path& folder);
  // Identifies the holder of an API key: HMAC-SHA-256 with a random secret, 32 bytes, stable for
  // the lifetime of the file, or of the store without one.
  std::string OwnerOf(std::string_view key) const;

  // Reserves an id for `owner` until ReleaseId() has been called once per call. False if a response
  // with this id is incomplete or belongs to another owner, or if another owner has reserved it.
  bool TakeId(const std::string& id, const std::string& owner);
  void ReleaseId(const std::string& id);

  // Stores a response, which replaces a complete one of the same owner and id. kNoRoom: no room
  // beside the incomplete responses within its owner's share; kTooLarge: no room even in an empty
  // store; kIdTaken: the existing response is incomplete or belongs to another owner.
  enum class Added { kYes, kNoRoom, kTooLarge, kIdTaken };
  Added Add(std::shared_ptr<StoredResponse> response);
  // Updates the entry of `response` after it has grown or ended. False if the store has no room for
  // it.
  bool Update(const StoredResponse& response);
  // Null if `owner` can access no such response.
  std::shared_ptr<StoredResponse> Find(const std::string& id, const std::string& owner) const;
  // The response whose output contains the item; null if `owner` can access none.
  std::shared_ptr<StoredResponse> FindByItem(const std::string& item_id,
                                             const std::string& owner) const;
  void Remove(const StoredResponse& response);
  // Cancels incomplete responses.
  void Stop();

  uint64_t max_bytes() const { return max_bytes_; }
  uint64_t bytes() const;
  size_t size() const;

 private:
  enum class OnFile { kNothing, kBeginning, kEverything };
  struct Entry {
    std::shared_ptr<StoredResponse> response;
    uint64_t bytes = 0;
    OnFile on_file = OnFile::kNothing;
    std::vector<std::string> item_ids = {};  // those in by_item_
  };
  using Entries = std::list<Entry>;  // oldest first
  struct Owner {
    Entries entries;
    uint64_t bytes = 0;
  };
  struct Place {
    Owner* owner = nullptr;
    Entries::iterator entry;
  };
  struct Hold {
    std::string owner;
    int count = 0;
  };

  Added AddToMemory(std::shared_ptr<StoredResponse> response, OnFile on_file) REQUIRES(mutex_);
  Entry* EntryOf(const StoredResponse& response) REQUIRES(mutex_);
  void Erase(Place place) REQUIRES(mutex_);
  bool MakeRoom(const std::string& owner, uint64_t bytes, size_t count, const Place* replaced)
      REQUIRES(mutex_);
  double LoadOf(uint64_t bytes, size_t count) const;
  void IndexItems(Entry& entry) REQUIRES(mutex_);
  // Writes `response`, if it is stored and not null, and removes erased responses from the file.
  Status Write(const StoredResponse* response) REQUIRES(write_mutex_);
  void WriteOrWarn(const StoredResponse* response) REQUIRES(write_mutex_);

  const uint64_t max_bytes_;
  std::vector<unsigned char> secret_;  // constant once the store is shared
  // Held while the file is written; locked before mutex_, which is never held during disk I/O.
  Mutex write_mutex_;
  std::unique_ptr<ResponseDatabase> file_ GUARDED_BY(write_mutex_);
  std::chrono::steady_clock::time_point next_warning_ GUARDED_BY(write_mutex_);
  mutable Mutex mutex_;
  bool has_file_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, Owner> owners_ GUARDED_BY(mutex_);  // owners with entries
  std::unordered_map<std::string, Place> by_id_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Hold> held_ids_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> by_item_ GUARDED_BY(mutex_);  // item -> response
  std::vector<std::string> erased_ GUARDED_BY(mutex_);  // ids to be removed from the file
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
