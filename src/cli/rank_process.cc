#include "cli/rank_process.h"

#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/mutex.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "parallel/listen_guard.h"
#include "parallel/mpi_group.h"
#include "parallel/mpi_library.h"
#include "parallel/rank_watch.h"
#include "parallel/socket_parts.h"

namespace sluice::cli {
namespace {

// Timeout of exchanges before the steps begin, in which all ranks take part at the same time.
constexpr std::chrono::seconds kHandshakeDeadline(20);
constexpr size_t kMostShownOptions = 150;  // in characters

// Whether the option may differ between ranks: options for rank 0's address, its logs, and paths of
// files.
bool IsOfOneRank(const options::Option& option) {
  constexpr std::string_view kNames[] = {
      "model",     "tokenizer",  "host",         "port",
      "uds",       "threads",    "node-rank",    "nnodes",
      "log-level", "log-format", "master-addr",  "master-port",
      "config",    "api-key",    "download-dir", "request-memory-bytes"};
  for (const std::string_view name : kNames) {
    if (option.name == name) return true;
  }
  return option.secret || option.effect == options::Effect::kNoEffect;
}

Fact OptionsFact(const options::Settings& settings) {
  std::string text;
  for (const options::Assignment* given : settings.given()) {
    if (IsOfOneRank(*given->option)) continue;
    text += fmt::format("{}--{} {}", text.empty() ? "" : " ", given->option->name,
                        fmt::join(given->words, " "));
  }
  if (text.empty()) text = "none";
  if (text.size() > kMostShownOptions) {
    const uint64_t hash = XXH3_64bits(text.data(), text.size());
    text = fmt::format("{}... ({:016x})", text.substr(0, kMostShownOptions), hash);
  }
  return {"options", text, "start all ranks with the same options"};
}

// Returns the address at which rank 0 waits for ranks on other machines: the address from `sluice
// serve`, if that started the ranks, else --master-addr; "" if there is no address.
Result<std::string> AddressOfGroup(const options::Settings& settings) {
  const char* const said = std::getenv(kListenAddressVariable);
  if (said != nullptr) return said;
  const std::string first = settings.TextOr("master-addr");
  return first.empty() ? Result<std::string>("") : AddressOfHost(first);
}

class MpiRankProcess final : public RankProcess {
 public:
  MpiRankProcess(std::unique_ptr<MpiGroup> group, double step_seconds, std::string address)
      : group_(std::move(group)), step_seconds_(step_seconds), address_(std::move(address)) {
    group_->OnFailure([this](const std::string& reason) { TellFailure(reason); });
  }

  Status StartWatch() {
    RankWatchOptions options;
    const bool is_launched = std::getenv(kLaunchedVariable) != nullptr;
    options.parent_name = is_launched ? "sluice serve, which started the ranks," : "the launcher";
    if (is_launched && all().rank() == 0) options.control = STDIN_FILENO;
    options.on_line = [this](std::string_view word) { TellWord(word); };
    options.on_loss = [this](const std::string& reason) { group_->FailAs(reason); };
    options.on_end = [] { EndAtOnce(1); };
    options.address = address_;
    ASSIGN_OR_RETURN(auto watch, RankWatch::Start(all(), std::move(options)));
    const MutexLock lock(mutex_);
    watch_ = std::move(watch);
    return {};
  }

  Communicator& all() override { return group_->all(); }
  int ranks_here() const override { return watch_->ranks_here(); }
  std::string library() const override { return group_->library(); }

  Status Compare(const std::vector<Fact>& facts) override {
    // Waits without a timeout, because ranks may be downloading.
    for (int rank = 0; rank < all().size(); ++rank) {
      char is_there = 1;
      all().Broadcast(&is_there, sizeof(is_there), rank, Patience::kIdle);
    }
    std::vector<std::string> names;
    for (int rank = 0; rank < group_->all().size(); ++rank) names.push_back(watch_->name(rank));
    return CompareFacts(group_->all(), facts, names);
  }

  void BeginSteps() override {
    group_->SetDeadline(std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(step_seconds_)));
  }

  void OnFailure(std::function<void(const std::string&)> act) override {
    const MutexLock lock(mutex_);
    act_ = std::move(act);
  }
  void OnWord(std::function<void(std::string_view)> act) override {
    const MutexLock lock(mutex_);
    on_word_ = std::move(act);
  }

  void Fail(const std::string& reason) override { group_->all().Fail(reason); }

  void EndWithFirst() override {
    // RankWatch ends the process before this time has passed.
    std::this_thread::sleep_for(std::chrono::seconds(30));
    EndAtOnce(1);
  }

  void Leave() override {
    watch_->SayGoodbye();
    group_->Leave();
  }

 private:
  void TellFailure(const std::string& reason) {
    const MutexLock lock(mutex_);
    if (watch_) watch_->Announce(reason);
    if (act_) return act_(reason);
    if (group_->all().rank() == 0 || !watch_) EndAtOnce(1, "error: " + reason + "\n");
  }

  void TellWord(std::string_view word) {
    const MutexLock lock(mutex_);
    if (on_word_) return on_word_(word);
    if (word == "drain") EndAtOnce(0);  // nothing is being served yet
  }

  std::unique_ptr<MpiGroup> group_;
  const double step_seconds_;
  const std::string address_;  // used as RankWatchOptions::address
  Mutex mutex_;
  std::function<void(const std::string&)> act_ GUARDED_BY(mutex_);
  std::function<void(std::string_view)> on_word_ GUARDED_BY(mutex_);
  std::unique_ptr<RankWatch> watch_;  // last member, because its thread uses those above
};

}  // namespace

Result<std::unique_ptr<RankProcess>> RankProcess::Join(const options::Settings& settings,
                                                       int num_ranks) {
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  if (launch) RETURN_IF_ERROR(CheckSharedMemory(launch->here));
  ASSIGN_OR_RETURN(const SluiceMpiTable* mpi, OpenMpiLibrary());
  ASSIGN_OR_RETURN(auto group, MpiGroup::Join(*mpi, {.deadline = kHandshakeDeadline}));
  RETURN_IF_ERROR(EndListenGuard());
  const int found = group->all().size();
  if (found != num_ranks) {
    return sluice::Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the launcher started {} processes, but --tensor-parallel-size times "
                    "--pipeline-parallel-size is {}: make them equal",
                    found, num_ranks),
        "tensor_parallel_size");
  }
  ASSIGN_OR_RETURN(std::string address, AddressOfGroup(settings));
  auto process = std::make_unique<MpiRankProcess>(
      std::move(group), *settings.Number("distributed-timeout-seconds"), std::move(address));
  try {
    RETURN_IF_ERROR(process->StartWatch());
    RETURN_IF_ERROR(process->Compare(
        {{"program", fmt::format("{} ({})", Version(), Commit()), "install one version everywhere"},
         OptionsFact(settings)}));
  } catch (const GroupError& error) {
    return sluice::Fail(ErrorCode::kUnavailable, error.what());
  }
  return process;
}

}  // namespace sluice::cli
