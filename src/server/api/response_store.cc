#include "server/api/response_store.h"

#include <algorithm>
#include <random>

#include <xxhash.h>

#include "base/log.h"

namespace sluice {
namespace {

constexpr auto kBetweenWarnings = std::chrono::minutes(1);

}  // namespace

ResponseStore::ResponseStore(uint64_t max_bytes)
    : max_bytes_(max_bytes), secret_(ResponseDatabase::kSecretBytes) {
  static_assert(ResponseDatabase::kSecretBytes >= XXH3_SECRET_SIZE_MIN);
  std::random_device random;
  for (unsigned char& byte : secret_) byte = static_cast<unsigned char>(random());
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
    // The store may have become smaller.
    if (AddToMemory(response, is_over ? OnFile::kEverything : OnFile::kBeginning) != Added::kYes)
      erased_.push_back(response->id());
  };
  RETURN_IF_ERROR(file_->Read(take));
  for (const auto& response : interrupted) RETURN_IF_ERROR(Write(response.get()));
  RETURN_IF_ERROR(Write(nullptr));
  const MutexLock lock(mutex_);
  has_file_ = true;
  LOG_INFO("server", "responses are kept in {}, which has {} from before", file_->file().string(),
           entries_.size());
  return {};
}

uint64_t ResponseStore::OwnerOf(std::string_view key) const {
  const uint64_t hash =
      XXH3_64bits_withSecret(key.data(), key.size(), secret_.data(), secret_.size());
  return hash == 0 ? 1 : hash;
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
    entry->bytes = bytes;
    IndexItems(*entry);
    needs_write = has_file_ && is_over && entry->on_file != OnFile::kEverything;
    has_room = MakeRoom(0, 0);
  }
  if (needs_write) {
    const MutexLock writing(write_mutex_);
    WriteOrWarn(&response);
  }
  return has_room;
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
    for (const Entry& entry : entries_) all.push_back(entry.response);
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
  return entries_.size();
}

ResponseStore::Added ResponseStore::AddToMemory(std::shared_ptr<StoredResponse> response,
                                                OnFile on_file) {
  const uint64_t bytes = response->bytes();
  if (const auto found = by_id_.find(response->id()); found != by_id_.end()) {
    const StoredResponse& other = *found->second->response;
    if (!other.is_over() || other.owner() != response->owner()) return Added::kIdTaken;
    Erase(found->second);
  }
  if (!MakeRoom(bytes, 1)) return Added::kNoRoom;
  bytes_ += bytes;
  entries_.push_back({std::move(response), bytes, on_file});
  const auto entry = std::prev(entries_.end());
  by_id_.emplace(entry->response->id(), entry);
  IndexItems(*entry);
  return Added::kYes;
}

// Null where it is not stored, or another one by now.
ResponseStore::Entry* ResponseStore::EntryOf(const StoredResponse& response) {
  const auto found = by_id_.find(response.id());
  const bool is_stored = found != by_id_.end() && found->second->response.get() == &response;
  return is_stored ? &*found->second : nullptr;
}

void ResponseStore::Erase(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  if (entry->on_file != OnFile::kNothing) erased_.push_back(entry->response->id());
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
      erased_.push_back(response->id());  // to make room, meanwhile
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
