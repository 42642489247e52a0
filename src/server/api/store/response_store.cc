#include "server/api/store/response_store.h"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <queue>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr auto kBetweenWarnings = std::chrono::minutes(1);

}  // namespace

ResponseStore::ResponseStore(uint64_t max_bytes)
    : max_bytes_(max_bytes), secret_(ResponseDatabase::kSecretBytes) {
  // The system's random source does not fail, so OpenSSL is out of memory.
  if (RAND_bytes(secret_.data(), static_cast<int>(secret_.size())) != 1) throw std::bad_alloc();
}

Status ResponseStore::KeepIn(const std::filesystem::path& folder) {
  const MutexLock writing(write_mutex_);
  ASSIGN_OR_RETURN(file_, ResponseDatabase::Open(folder));
  secret_ = file_->secret();
  std::vector<std::shared_ptr<StoredResponse>> interrupted;
  const auto take = [&](StoredResponse::Content content, bool is_over) {
    if (!is_over)
      content.body = WithStatus(content.body, "failed",
                                "the server ended while this response was being generated");
    const auto response = std::make_shared<StoredResponse>(std::move(content), /*is_over=*/true);
    if (!is_over) interrupted.push_back(response);
    const MutexLock lock(mutex_);
    // A stored response may no longer fit, because the store's limit may be lower than in the
    // previous run.
    if (AddToMemory(response, is_over ? OnFile::kEverything : OnFile::kBeginning) != Added::kYes)
      erased_.push_back(response->id());
  };
  RETURN_IF_ERROR(file_->Read(take));
  for (const auto& response : interrupted) RETURN_IF_ERROR(Write(response.get()));
  RETURN_IF_ERROR(Write(nullptr));
  const MutexLock lock(mutex_);
  has_file_ = true;
  LOG_INFO("server", "responses are stored in {}, which contains {} from earlier runs",
           file_->file().string(), by_id_.size());
  return {};
}

std::string ResponseStore::OwnerOf(std::string_view key) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
             reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data(),
             &size) != nullptr,
        "HMAC-SHA-256");
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

bool ResponseStore::TakeId(const std::string& id, const std::string& owner) {
  const MutexLock lock(mutex_);
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    const StoredResponse& other = *found->second.entry->response;
    if (!other.is_over() || other.owner() != owner) return false;
  }
  Hold& hold = held_ids_.try_emplace(id, Hold{owner, 0}).first->second;
  if (hold.owner != owner) return false;
  ++hold.count;
  return true;
}

void ResponseStore::ReleaseId(const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = held_ids_.find(id);
  if (found != held_ids_.end() && --found->second.count == 0) held_ids_.erase(found);
}

ResponseStore::Added ResponseStore::Add(std::shared_ptr<StoredResponse> response) {
  const MutexLock writing(write_mutex_);
  Added added = Added::kNoRoom;
  {
    const MutexLock lock(mutex_);
    added = AddToMemory(response, OnFile::kNothing);
  }
  WriteOrWarn(response.get());
  return added;
}

bool ResponseStore::Update(const StoredResponse& response) {
  const bool is_over = response.is_over();
  const uint64_t bytes = response.bytes();
  bool has_room = false, needs_write = false;
  {
    const MutexLock lock(mutex_);
    Entry* entry = EntryOf(response);
    if (entry == nullptr) return true;
    bytes_ += bytes - entry->bytes;
    owners_.at(response.owner()).bytes += bytes - entry->bytes;
    entry->bytes = bytes;
    IndexItems(*entry);
    needs_write = has_file_ && is_over && entry->on_file != OnFile::kEverything;
    has_room = MakeRoom(response.owner(), 0, 0, nullptr);
  }
  if (needs_write) {
    const MutexLock writing(write_mutex_);
    WriteOrWarn(&response);
  }
  return has_room;
}

std::shared_ptr<StoredResponse> ResponseStore::Find(const std::string& id,
                                                    const std::string& owner) const {
  const MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  const std::shared_ptr<StoredResponse>& response = found->second.entry->response;
  return response->owner() == owner ? response : nullptr;
}

std::shared_ptr<StoredResponse> ResponseStore::FindByItem(const std::string& item_id,
                                                          const std::string& owner) const {
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
  const MutexLock writing(write_mutex_);
  {
    const MutexLock lock(mutex_);
    if (EntryOf(response) == nullptr) return;
    Erase(by_id_.at(response.id()));
  }
  WriteOrWarn(nullptr);
}

void ResponseStore::Stop() {
  std::vector<std::shared_ptr<StoredResponse>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, owner] : owners_) {
      for (const Entry& entry : owner.entries) all.push_back(entry.response);
    }
  }
  for (const auto& response : all) {
    if (response->End("cancelled", "")) Update(*response);
  }
}

uint64_t ResponseStore::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return by_id_.size();
}

ResponseStore::Added ResponseStore::AddToMemory(std::shared_ptr<StoredResponse> response,
                                                OnFile on_file) {
  const uint64_t bytes = response->bytes();
  std::optional<Place> replaced;
  if (const auto found = by_id_.find(response->id()); found != by_id_.end()) {
    const StoredResponse& other = *found->second.entry->response;
    if (!other.is_over() || other.owner() != response->owner()) return Added::kIdTaken;
    replaced = found->second;
  }
  if (bytes > max_bytes_) return Added::kTooLarge;
  if (!MakeRoom(response->owner(), bytes, 1, replaced ? &*replaced : nullptr))
    return Added::kNoRoom;
  Owner& owner = owners_[response->owner()];
  bytes_ += bytes;
  owner.bytes += bytes;
  owner.entries.push_back({std::move(response), bytes, on_file});
  const auto entry = std::prev(owner.entries.end());
  by_id_.emplace(entry->response->id(), Place{&owner, entry});
  IndexItems(*entry);
  return Added::kYes;
}

// Returns null if the response is not stored, or if another one has replaced it.
ResponseStore::Entry* ResponseStore::EntryOf(const StoredResponse& response) {
  const auto found = by_id_.find(response.id());
  const bool is_stored = found != by_id_.end() && found->second.entry->response.get() == &response;
  return is_stored ? &*found->second.entry : nullptr;
}

void ResponseStore::Erase(Place place) {
  const Entry& entry = *place.entry;
  const std::shared_ptr<StoredResponse> response = entry.response;
  bytes_ -= entry.bytes;
  place.owner->bytes -= entry.bytes;
  if (entry.on_file != OnFile::kNothing) erased_.push_back(response->id());
  for (const std::string& item : entry.item_ids) by_item_.erase(item);
  by_id_.erase(response->id());
  place.owner->entries.erase(place.entry);
  if (place.owner->entries.empty()) owners_.erase(response->owner());
}

// Returns the fraction of the store that `count` responses of `bytes` in total occupy.
double ResponseStore::LoadOf(uint64_t bytes, size_t count) const {
  return std::max(
      static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(max_bytes_, 1)),
      static_cast<double>(count) / static_cast<double>(kMaxResponses));
}

// Makes room for `count` more responses of `owner` with `bytes` in total. Removes `replaced`,
// unless it is null. Returns false and removes nothing if there cannot be enough room.
bool ResponseStore::MakeRoom(const std::string& owner, uint64_t bytes, size_t count,
                             const Place* replaced) {
  // The bytes that an owner would keep, and the oldest of its entries that may be removed.
  struct Share {
    double load = 0;
    bool is_own = false;
    Owner* owner = nullptr;
    uint64_t bytes = 0;
    size_t count = 0;
    Entries::iterator next = {};
    bool operator<(const Share& other) const {
      return load != other.load ? load < other.load : is_own < other.is_own;
    }
  };
  uint64_t all_bytes = bytes_ + bytes;
  size_t all_count = by_id_.size() + count;
  std::vector<Place> victims;
  if (replaced != nullptr) {
    all_bytes -= replaced->entry->bytes;
    --all_count;
    victims.push_back(*replaced);
  }
  const auto fits = [&] { return all_bytes <= max_bytes_ && all_count <= kMaxResponses; };
  std::priority_queue<Share> shares;
  if (!fits()) {
    for (auto& [name, other] : owners_) {
      Share share{.is_own = name == owner,
                  .owner = &other,
                  .bytes = other.bytes,
                  .count = other.entries.size(),
                  .next = other.entries.begin()};
      if (share.is_own) {
        share.bytes += bytes;
        share.count += count;
        if (replaced != nullptr) {
          share.bytes -= replaced->entry->bytes;
          --share.count;
        }
      }
      share.load = LoadOf(share.bytes, share.count);
      shares.push(share);
    }
    // The owner may have no entries yet.
    if (!owners_.contains(owner)) shares.push({.load = LoadOf(bytes, count), .is_own = true});
  }
  while (!fits() && !shares.empty()) {
    Share share = shares.top();
    shares.pop();
    const auto is_kept = [&](const Entry& entry) {
      return !entry.response->is_over() || (replaced != nullptr && &entry == &*replaced->entry);
    };
    while (share.owner != nullptr && share.next != share.owner->entries.end() &&
           is_kept(*share.next))
      ++share.next;
    if (share.owner == nullptr || share.next == share.owner->entries.end()) {
      // The other owners that have removable responses hold less than this owner would.
      if (share.is_own) return false;
      continue;
    }
    victims.push_back({share.owner, share.next});
    all_bytes -= share.next->bytes;
    --all_count;
    share.bytes -= share.next->bytes;
    --share.count;
    ++share.next;
    share.load = LoadOf(share.bytes, share.count);
    shares.push(share);
  }
  if (!fits()) return false;
  for (const Place& victim : victims) Erase(victim);
  return true;
}

void ResponseStore::IndexItems(Entry& entry) {
  if (!entry.item_ids.empty()) return;
  entry.item_ids = entry.response->item_ids();
  for (const std::string& item : entry.item_ids) by_item_.emplace(item, entry.response->id());
}

Status ResponseStore::Write(const StoredResponse* response) {
  if (file_ == nullptr) return {};
  std::vector<std::string> erased;
  {
    const MutexLock lock(mutex_);
    if (response != nullptr && EntryOf(*response) == nullptr) response = nullptr;
    erased.swap(erased_);
  }
  if (response == nullptr && erased.empty()) return {};
  const bool is_over = response != nullptr && response->is_over();
  Status status = file_->Write(response, erased);
  const MutexLock lock(mutex_);
  if (!status) {
    erased_.insert(erased_.begin(), erased.begin(), erased.end());
  } else if (response != nullptr) {
    if (Entry* entry = EntryOf(*response); entry != nullptr) {
      entry->on_file = is_over ? OnFile::kEverything : OnFile::kBeginning;
    } else {
      // The response was removed to make room while it was written.
      erased_.push_back(response->id());
    }
  }
  return status;
}

void ResponseStore::WriteOrWarn(const StoredResponse* response) {
  const Status status = Write(response);
  if (status) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_warning_) return;
  next_warning_ = now + kBetweenWarnings;
  LOG_WARNING("server", "responses are stored in memory only for now: {}", status.error().message);
}

}  // namespace sluice
