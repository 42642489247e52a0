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
#include "server/api/response_database.h"
#include "server/api/stored_response.h"

namespace sluice {

// Where there is no room for more, the oldest that are over are forgotten.
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

  // Keeps responses in a file of `folder`, too, and takes in those that are there; what ran when it
  // was last written has failed. For an empty store, before others use it. Errors: those of
  // ResponseDatabase.
  Status KeepIn(const std::filesystem::path& folder);
  // Who it is that presents an API key, as long as the file exists, else as long as the store does:
  // a keyed hash, never 0.
  uint64_t OwnerOf(std::string_view key) const;

  // Replaces one of the same owner and id that is over.
  enum class Added { kYes, kNoRoom, kIdTaken };  // taken: that one runs, or is another owner's
  Added Add(std::shared_ptr<StoredResponse> response);
  // Takes note of what `response` holds by now, and of its end. False where there is no room for
  // it.
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
  enum class OnFile { kNothing, kBeginning, kEverything };
  struct Entry {
    std::shared_ptr<StoredResponse> response;
    uint64_t bytes = 0;
    OnFile on_file = OnFile::kNothing;
    std::vector<std::string> item_ids = {};  // in by_item_
  };
  using Entries = std::list<Entry>;  // the oldest first

  Added AddToMemory(std::shared_ptr<StoredResponse> response, OnFile on_file) REQUIRES(mutex_);
  Entry* EntryOf(const StoredResponse& response) REQUIRES(mutex_);
  void Erase(Entries::iterator entry) REQUIRES(mutex_);
  bool MakeRoom(uint64_t bytes, size_t count) REQUIRES(mutex_);
  void IndexItems(Entry& entry) REQUIRES(mutex_);
  // Brings the file up to date with `response`, if it is stored and not null, and with what was
  // erased.
  Status Write(const StoredResponse* response) REQUIRES(write_mutex_);
  void WriteOrWarn(const StoredResponse* response) REQUIRES(write_mutex_);

  const uint64_t max_bytes_;
  std::vector<unsigned char> secret_;  // does not change once others use the store
  // Held while the file is written, and taken before mutex_: no one waits for the disk with that.
  Mutex write_mutex_;
  std::unique_ptr<ResponseDatabase> file_ GUARDED_BY(write_mutex_);
  std::chrono::steady_clock::time_point next_warning_ GUARDED_BY(write_mutex_);
  mutable Mutex mutex_;
  bool has_file_ GUARDED_BY(mutex_) = false;
  Entries entries_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, Entries::iterator> by_id_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> by_item_ GUARDED_BY(mutex_);  // to a response's id
  std::vector<std::string> erased_ GUARDED_BY(mutex_);  // ids that are only in the file
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
