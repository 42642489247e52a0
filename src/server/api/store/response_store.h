// The responses of /v1/responses that can be fetched later. They are in memory and, if they must
// survive a restart, also in a file.
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

// Stores the responses of all owners in limited memory. If a new response does not fit, the owner
// that holds the most, by bytes or by number, loses its oldest complete response. This is repeated
// until there is room. The new response counts for its owner. Other owners without complete
// responses are skipped. If the new response's owner holds the most but has no complete response
// left, the new response is refused and nothing is removed. So an owner with less than an equal
// share loses nothing to others.
//
// With a file (KeepIn), each change is written before the call returns, so a client can fetch a
// received answer even after a crash. The events of a stream are not written. Find never waits for
// the disk. If a write fails, for example because the disk is full, the response stays in memory. A
// warning is logged at most once a minute. If removing responses from the file fails, the next
// change tries again.
//
// Thread safety: all methods may be called from any thread. Those that change the contents wait for
// the disk and for each other.
class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 65536;

  explicit ResponseStore(uint64_t max_bytes);

  // Also stores responses in a file in `folder`, and loads the existing ones. Responses that were
  // incomplete when last written are loaded as failed. Errors: the errors of ResponseDatabase.
  // REQUIRES: the store is empty and not shared yet.
  Status KeepIn(const std::filesystem::path& folder);
  // Identifies the holder of an API key: HMAC-SHA-256 with a random secret, 32 bytes. It is stable
  // for the lifetime of the file, or of the store if there is no file.
  std::string OwnerOf(std::string_view key) const;

  // Reserves an id for `owner`. Each successful call needs one call of ReleaseId(). Returns false
  // if a response with this id is incomplete or belongs to another owner, or if another owner has
  // reserved the id.
  bool TakeId(const std::string& id, const std::string& owner);
  void ReleaseId(const std::string& id);

  // Stores a response, which replaces a complete one with the same owner and id. kNoRoom:
  // refused, as described above. kTooLarge: no room even in an empty store. kIdTaken: the existing
  // response is incomplete or belongs to another owner.
  enum class Added { kYes, kNoRoom, kTooLarge, kIdTaken };
  Added Add(std::shared_ptr<StoredResponse> response);
  // Updates the entry of `response` after it has grown or ended. Returns false if the store has no
  // room for it.
  bool Update(const StoredResponse& response);
  // Returns null if `owner` cannot access a response with this id.
  std::shared_ptr<StoredResponse> Find(const std::string& id, const std::string& owner) const;
  // Returns the response whose output contains the item; null if `owner` cannot access such a
  // response.
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
    std::vector<std::string> item_ids = {};  // the entries in by_item_
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
  // Writes `response`, if it is not null and is stored, and removes erased responses from the file.
  Status Write(const StoredResponse* response) REQUIRES(write_mutex_);
  void WriteOrWarn(const StoredResponse* response) REQUIRES(write_mutex_);

  const uint64_t max_bytes_;
  std::vector<unsigned char> secret_;  // constant once the store is shared
  // Held while the file is written. Locked before mutex_, which is never held during disk I/O.
  Mutex write_mutex_;
  std::unique_ptr<ResponseDatabase> file_ GUARDED_BY(write_mutex_);
  std::chrono::steady_clock::time_point next_warning_ GUARDED_BY(write_mutex_);
  mutable Mutex mutex_;
  bool has_file_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::string, Owner> owners_ GUARDED_BY(mutex_);  // owners that have entries
  std::unordered_map<std::string, Place> by_id_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Hold> held_ids_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> by_item_ GUARDED_BY(mutex_);  // maps items to
                                                                             // responses
  std::vector<std::string> erased_ GUARDED_BY(mutex_);  // ids to remove from the file
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
