#include "parallel/emulated_nccl.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/mutex.h"
#include "device/emulated_queue.h"

namespace sluice {

using emulated_nccl::Fault;

namespace {

enum class Kind { kAllGather, kBroadcast };

// An operation that all ranks take part in.
struct Collective {
  Kind kind = Kind::kAllGather;
  size_t count = 0;
  int root = 0;
  std::map<int, const void*> sent = {};  // data of each rank
  int num_done = 0;                      // number of ranks that have received their part
  int num_left = 0;
};

// A message from one rank to another.
struct Message {
  const void* data = nullptr;
  size_t count = 0;
  bool is_taken = false;
};

// State shared by the ranks of a clique.
struct Exchanges {
  int size = 0;
  int num_joined = 0;
  std::map<int64_t, Collective> collectives;  // by their number
  // Keyed by sender, receiver and number.
  std::map<std::tuple<int, int, int64_t>, Message> messages;
  int error = nccl::kSuccess;
  std::string reason;

  void Fail(int code, std::string why) {
    if (error != nccl::kSuccess) return;
    error = code;
    reason = std::move(why);
  }
};

// Ranks that share a unique id.
struct Clique {
  Mutex mutex;
  Exchanges exchanges GUARDED_BY(mutex);
};

// A rank of a clique. Shared with its operations on streams.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool is_aborted = false, hangs = false;  // guarded by the clique's mutex
  // Numbers of calls, used only by the calling thread.
  int64_t num_collectives = 0;
  std::map<int, int64_t> num_sent, num_received;  // number of messages to and from each other rank
  std::string told;                               // last result that last_error returned
};

// Advances as far as possible. Returns whether the rank's part is done.
using Try = std::function<bool(Exchanges&)>;

struct Operation {
  std::shared_ptr<Member> member;
  EmulatedQueue* stream = nullptr;
  Try advance;
};

Mutex& TheMutex() {
  static Mutex mutex;
  return mutex;
}
// Cliques that some ranks have not joined yet, by unique id.
std::map<uint64_t, std::shared_ptr<Clique>>& Forming() {
  static std::map<uint64_t, std::shared_ptr<Clique>> forming;
  return forming;
}

std::atomic<Fault> the_fault{Fault::kNone};
std::atomic<int> the_faulty_rank{-1};

Fault TakeFault(int rank) {
  if (the_faulty_rank.load() != rank) return Fault::kNone;
  return the_fault.exchange(Fault::kNone);
}

thread_local int group_depth = 0;
thread_local std::vector<Operation> grouped;

// Enqueues operations of one stream, which advance concurrently.
void Launch(std::vector<Operation> operations) {
  EmulatedQueue* const stream = operations.front().stream;
  auto pending = std::make_shared<std::vector<Operation>>(std::move(operations));
  stream->EnqueueWaiting([pending] {
    std::erase_if(*pending, [](const Operation& operation) {
      Member& member = *operation.member;
      Clique& clique = *member.clique;
      const MutexLock lock(clique.mutex);
      if (member.is_aborted) return true;
      Exchanges& exchanges = clique.exchanges;
      return !member.hangs && exchanges.error == nccl::kSuccess && operation.advance(exchanges);
    });
    return pending->empty();
  });
}

void LaunchGroup() {
  while (!grouped.empty()) {
    EmulatedQueue* const stream = grouped.front().stream;
    std::vector<Operation> mine;
    std::erase_if(grouped, [&](Operation& operation) {
      if (operation.stream != stream) return false;
      mine.push_back(std::move(operation));
      return true;
    });
    Launch(std::move(mine));
  }
}

std::shared_ptr<Member>& MemberOf(nccl::Comm comm) {
  return *reinterpret_cast<std::shared_ptr<Member>*>(comm);
}

int Add(nccl::Comm comm, void* stream, Try advance) {
  grouped.push_back({MemberOf(comm), static_cast<EmulatedQueue*>(stream), std::move(advance)});
  if (group_depth == 0) LaunchGroup();
  return nccl::kSuccess;
}

// Applies a pending fault of the rank. Returns whether the operation can continue.
bool Suffer(Exchanges& exchanges, Member& member, size_t& count) {
  switch (TakeFault(member.rank)) {
    case Fault::kNone: return true;
    case Fault::kHang: member.hangs = true; return false;
    case Fault::kAsyncError:
      exchanges.Fail(nccl::kRemoteError, fmt::format("rank {} is gone", member.rank));
      return false;
    case Fault::kWrongCount: ++count; return true;
  }
  return true;
}

int AddCollective(nccl::Comm comm, void* stream, const Collective& call, const void* from,
                  std::byte* to) {
  Member& member = *MemberOf(comm);
  const int64_t number = member.num_collectives++;
  return Add(
      comm, stream,
      [&member, number, call, from, to, has_come = false,
       is_done = false](Exchanges& exchanges) mutable {
        Collective& shared = exchanges.collectives[number];
        if (!has_come) {
          size_t count = call.count;
          if (!Suffer(exchanges, member, count)) return false;
          if (shared.sent.empty()) {
            shared.kind = call.kind;
            shared.count = count;
            shared.root = call.root;
          }
          if (shared.kind != call.kind || shared.count != count || shared.root != call.root) {
            exchanges.Fail(nccl::kInvalidUsage,
                           fmt::format("rank {} exchanges {} bytes where others exchange {}",
                                       member.rank, count, shared.count));
            return false;
          }
          shared.sent[member.rank] = from;
          has_come = true;
        }
        if (static_cast<int>(shared.sent.size()) < exchanges.size) return false;
        if (!is_done) {
          for (const auto& [rank, data] : shared.sent) {
            if (call.kind == Kind::kBroadcast && rank != call.root) continue;
            const size_t place =
                call.kind == Kind::kBroadcast ? 0 : static_cast<size_t>(rank) * call.count;
            std::memmove(to + place, data, call.count);
          }
          is_done = true;
          ++shared.num_done;
        }
        // The memory must not change until all ranks have read it.
        if (shared.num_done < exchanges.size) return false;
        if (++shared.num_left == exchanges.size) exchanges.collectives.erase(number);
        return true;
      });
}

int GetVersion(int* version) {
  *version = 21400;
  return nccl::kSuccess;
}

int GetUniqueId(nccl::UniqueId* id) {
  static std::atomic<uint64_t> next{1};
  const uint64_t number = next++;
  *id = {};
  std::memcpy(id->bytes, &number, sizeof(number));
  return nccl::kSuccess;
}

int InitRank(nccl::Comm* comm, int size, nccl::UniqueId id, int rank, nccl::Config* config) {
  if (size < 1 || rank < 0 || rank >= size || config->magic != nccl::Config().magic)
    return nccl::kInvalidArgument;
  uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof(number));
  const MutexLock lock(TheMutex());
  std::shared_ptr<Clique>& forming = Forming()[number];
  if (forming == nullptr) forming = std::make_shared<Clique>();
  auto member = std::make_shared<Member>();
  member->clique = forming;
  member->rank = rank;
  const MutexLock clique_lock(member->clique->mutex);
  Exchanges& exchanges = member->clique->exchanges;
  exchanges.size = size;
  if (++exchanges.num_joined == size) Forming().erase(number);
  *comm = reinterpret_cast<nccl::Comm>(new std::shared_ptr<Member>(member));
  return nccl::kInProgress;
}

int Abort(nccl::Comm comm) {
  std::shared_ptr<Member>* const member = &MemberOf(comm);
  const int rank = (*member)->rank;
  {
    // Withdraws this rank's data that others have not read. Those ranks wait until they are
    // aborted.
    Clique& clique = *(*member)->clique;
    const MutexLock lock(clique.mutex);
    Exchanges& exchanges = clique.exchanges;
    (*member)->is_aborted = true;
    for (auto& [number, collective] : exchanges.collectives) {
      if (collective.num_done < exchanges.size) collective.sent.erase(rank);
    }
    std::erase_if(exchanges.messages, [&](const auto& entry) {
      return std::get<0>(entry.first) == rank && !entry.second.is_taken;
    });
  }
  delete member;
  return nccl::kSuccess;
}

int GetAsyncError(nccl::Comm comm, int* error) {
  Clique& clique = *MemberOf(comm)->clique;
  const MutexLock lock(clique.mutex);
  Exchanges& exchanges = clique.exchanges;
  const bool is_forming = exchanges.num_joined < exchanges.size;
  *error = exchanges.error != nccl::kSuccess ? exchanges.error
           : is_forming                      ? nccl::kInProgress
                                             : nccl::kSuccess;
  return nccl::kSuccess;
}

const char* ErrorString(int result) {
  switch (result) {
    case nccl::kSuccess: return "no error";
    case nccl::kInvalidArgument: return "invalid argument";
    case nccl::kInvalidUsage: return "invalid usage";
    case nccl::kRemoteError: return "remote process exited or there was a network error";
    default: return "an error";
  }
}

const char* LastError(nccl::Comm comm) {
  Member& member = *MemberOf(comm);
  const MutexLock lock(member.clique->mutex);
  member.told = member.clique->exchanges.reason;
  return member.told.c_str();
}

int GroupStart() {
  ++group_depth;
  return nccl::kSuccess;
}

int GroupEnd() {
  if (group_depth == 0) return nccl::kInvalidUsage;
  if (--group_depth == 0) LaunchGroup();
  return nccl::kSuccess;
}

int AllGather(const void* from, void* to, size_t count, int /*type*/, nccl::Comm comm,
              void* stream) {
  return AddCollective(comm, stream, {.kind = Kind::kAllGather, .count = count}, from,
                       static_cast<std::byte*>(to));
}

int Broadcast(const void* from, void* to, size_t count, int /*type*/, int root, nccl::Comm comm,
              void* stream) {
  return AddCollective(comm, stream, {.kind = Kind::kBroadcast, .count = count, .root = root}, from,
                       static_cast<std::byte*>(to));
}

int Send(const void* from, size_t count, int /*type*/, int peer, nccl::Comm comm, void* stream) {
  Member& member = *MemberOf(comm);
  const std::tuple key{member.rank, peer, member.num_sent[peer]++};
  return Add(comm, stream,
             [&member, key, from, count, has_come = false](Exchanges& exchanges) mutable {
               if (!has_come) {
                 size_t sent = count;
                 if (!Suffer(exchanges, member, sent)) return false;
                 exchanges.messages[key] = {from, sent, false};
                 has_come = true;
               }
               if (!exchanges.messages[key].is_taken) return false;
               exchanges.messages.erase(key);
               return true;
             });
}

int Receive(void* to, size_t count, int /*type*/, int peer, nccl::Comm comm, void* stream) {
  Member& member = *MemberOf(comm);
  const std::tuple key{peer, member.rank, member.num_received[peer]++};
  return Add(comm, stream, [&member, key, to, count](Exchanges& exchanges) {
    const auto found = exchanges.messages.find(key);
    if (found == exchanges.messages.end()) return false;
    size_t expected = count;
    if (!Suffer(exchanges, member, expected)) return false;
    if (found->second.count != expected) {
      exchanges.Fail(nccl::kInvalidUsage,
                     fmt::format("rank {} expects {} bytes where rank {} sends {}", member.rank,
                                 expected, std::get<0>(key), found->second.count));
      return false;
    }
    std::memcpy(to, found->second.data, count);
    found->second.is_taken = true;
    return true;
  });
}

}  // namespace

const nccl::Functions& EmulatedNccl() {
  static constexpr nccl::Functions kFunctions = {
      .get_version = GetVersion,
      .get_unique_id = GetUniqueId,
      .init_rank = InitRank,
      .abort = Abort,
      .get_async_error = GetAsyncError,
      .error_string = ErrorString,
      .last_error = LastError,
      .group_start = GroupStart,
      .group_end = GroupEnd,
      .all_gather = AllGather,
      .broadcast = Broadcast,
      .send = Send,
      .receive = Receive,
  };
  return kFunctions;
}

namespace emulated_nccl {

void Inject(Fault fault, int rank) {
  the_faulty_rank = rank;
  the_fault = fault;
}

}  // namespace emulated_nccl
}  // namespace sluice
