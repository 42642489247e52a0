// The responses of /v1/responses that can be fetched later: in memory, and also in a file if they
// are to survive a restart.
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

// When it is full, complete responses are removed: the oldest of whoever holds most, by bytes or by
// number. So an owner that holds less than the equal share of all who store loses nothing to
// others, and what would leave its owner with more than the others can give up is refused. Nothing
// is removed for what is then refused.
//
// With a file (KeepIn) each change of what is stored is written before the call returns, so that a
// client that has its answer finds it again after a crash; events of a stream are not written. Find
// never waits for the disk. What the file cannot take (a full disk) is logged, at most once a
// minute, and stays in memory; what was to be removed from it is removed with the next change.
//
// Thread safety: all methods may be called from any thread; those that change what is stored wait
// for the disk, and for each other.
class ResponseStore {
 public:
  static constexpr size_t kMaxResponses = 65536;

  explicit ResponseStore(uint64_t max_bytes);

  // Also keeps responses in a file of `folder`, and loads those that are there; responses that were
  // incomplete when last written are loaded as failed. REQUIRES: the store is empty and not shared
  // yet. Errors: those of ResponseDatabase.
  Status KeepIn(const std::filesystem::path& folder);
  // Identifies the holder of an API key: HMAC-SHA-256 with a random secret, 32 bytes, stable for
  // the lifetime of the file, or of the store without one.
  std::string OwnerOf(std::string_view key) const;

  // Lets `owner` use an id until ReleaseId() is called as often. False if a response with that id
  // is incomplete, or belongs to another owner, or another owner has taken it.
  bool TakeId(const std::string& id, const std::string& owner);
  void ReleaseId(const std::string& id);

  // Replaces a complete response of the same owner and id. kNoRoom: not beside what runs, and
  // within its owner's share; kTooLarge: not into an empty store either; kIdTaken: the other one is
  // incomplete, or of another owner.
  enum class Added { kYes, kNoRoom, kTooLarge, kIdTaken };
  Added Add(std::shared_ptr<StoredResponse> response);
  // Updates the entry of `response` after it has grown or ended. False if the store has no room for
  // it.
  bool Update(const StoredResponse& response);
  // Null if there is none that `owner` may access.
  std::shared_ptr<StoredResponse> Find(const std::string& id, const std::string& owner) const;
  // The response whose output contains the item.
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
    std::vector<std::string> item_ids = {};  // in by_item_
  };
  using Entries = std::list<Entry>;  // the oldest first
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
  // Brings the file up to date with `response`, if it is stored and not null, and with what was
  // erased.
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
  std::unordered_map<std::string, Owner> owners_ GUARDED_BY(mutex_);  // who has entries
  std::unordered_map<std::string, Place> by_id_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Hold> held_ids_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> by_item_ GUARDED_BY(mutex_);  // to a response's id
  std::vector<std::string> erased_ GUARDED_BY(mutex_);  // ids that are only in the file
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
