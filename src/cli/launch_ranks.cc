#include "cli/launch_ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/child_process.h"
#include "cli/rank_process.h"
#include "cli/rank_secrets.h"
#include "cli/signals.h"
#include "parallel/listen_guard.h"
#include "parallel/mpi_library.h"

namespace sluice::cli {
namespace {

// Time for the ranks to end after draining.
constexpr std::chrono::seconds kTimeToEndRanks(75);
constexpr int kKilled = 128;  // a larger exit code is 128 + a signal

// Returns the arguments of this process's command line.
std::vector<std::string> OwnCommand() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// Returns the path of the program under the name by which it was called, which determines its
// options.
std::string OwnProgram(const std::string& called) {
  if (called.find('/') != std::string::npos) return std::filesystem::absolute(called);
  const std::string found = FindInPath(called);
  return found.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : found;
}

// Returns the settings for starting mpirun, including its environment.
Result<ChildOptions> OptionsOfLauncher(const std::string& address) {
  ChildOptions options;
  ASSIGN_OR_RETURN(options.variables, ListenGuard(address));
  options.variables[kLaunchedVariable] = "1";
  return options;
}

}  // namespace

void SetMpiEnvironment(bool several_machines, const std::string& network) {
  const std::pair<const char*, std::string> defaults[] = {
      // Allows threads on all CPUs. By default two ranks would be bound to one core each.
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      // More ranks than CPUs are allowed; they are only slower.
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", several_machines ? "self,vader,tcp" : "self,vader"},
      // Uses shared memory without system calls that containers forbid.
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      // mpirun kills the other ranks 4 seconds after a rank has ended. Meanwhile, rank 0 notifies
      // its clients.
      {"OMPI_MCA_odls_base_sigkill_timeout", "4"},
      {"OMPI_MCA_orte_execute_quiet", "1"},
      // Notices an unreachable machine within seconds.
      {"OMPI_MCA_oob_tcp_keepalive_time", "2"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "1"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "3"},
      {"OMPI_MCA_oob_tcp_if_include", network},
      {"OMPI_MCA_btl_tcp_if_include", network},
  };
  for (const auto& [name, value] : defaults) {
    if (!value.empty()) setenv(name, value.c_str(), /*overwrite=*/0);
  }
  if (geteuid() == 0) {  // as in containers
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
}

Result<int> LaunchRanks(const options::Settings& settings, int num_ranks,
                        const RankPlaces& places) {
  const std::vector<std::string>& hosts = places.hosts;
  const std::string mpirun = FindInPath("mpirun");
  if (mpirun.empty()) {
    return Fail(
        ErrorCode::kUnsupported,
        "mpirun is not in PATH, but ranks in separate processes need it: install Open MPI (Debian: "
        "openmpi-bin), or omit --distributed-executor-backend to run ranks as threads",
        "distributed_executor_backend");
  }
  if (hosts.empty()) RETURN_IF_ERROR(CheckSharedMemory(num_ranks));
  ASSIGN_OR_RETURN(ChildOptions options, OptionsOfLauncher(places.address));
  ASSIGN_OR_RETURN(const RankSecrets secrets, RankSecrets::Keep(settings));
  ASSIGN_OR_RETURN(const std::vector<std::string> own, WithoutSecrets(OwnCommand(), settings));
  options.variables[kSecretsVariable] = secrets.path();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Fail(ErrorCode::kInternal, fmt::format("pipe: {}", std::strerror(errno)));
  options.input = ends[0];
  if (hosts.empty()) SetMpiEnvironment(/*several_machines=*/false, "");
  std::vector<std::string> words{"mpirun", "-n", std::to_string(num_ranks)};
  if (!hosts.empty()) {
    words.emplace_back("--host");
    words.push_back(fmt::format("{}", fmt::join(hosts, ",")));
  }
  words.push_back(OwnProgram(own.front()));
  words.insert(words.end(), own.begin() + 1, own.end());
  LOG_INFO("serve", "starting {} ranks with {}, which listen for each other only at {}", num_ranks,
           mpirun, places.address);
  const auto child = StartProcess(mpirun, std::move(words), options);
  close(ends[0]);
  if (!child) {
    close(ends[1]);
    return tl::unexpected<Error>(child.error());
  }
  const auto say = [&ends](std::string_view word) {
    // The write fails if the ranks have ended and closed the pipe. In that case they need no
    // message.
    static_cast<void>(!write(ends[1], word.data(), word.size()));
  };
  const double delay_seconds = *settings.Number("drain-delay");
  const double drain_seconds = *settings.Number("shutdown-timeout");
  // A second signal ends the delay; a third one ends the launcher.
  bool may_hurry = delay_seconds > 0;
  const SignalWatcher watcher(
      [&say](int) { say("drain\n"); },
      EndLimit{std::chrono::duration<double>(delay_seconds + drain_seconds) + kTimeToEndRanks,
               "the ranks did not end in time: the server ends without them"},
      [&say] { say("reload\n"); },
      [&say, &may_hurry] {
        if (!may_hurry) return false;
        may_hurry = false;
        say("hurry\n");
        return true;
      });
  const int code = WaitForProcess(*child);
  close(ends[1]);
  if (code > kKilled) LOG_ERROR("serve", "the ranks ended with code {}", code);
  return code;
}

}  // namespace sluice::cli
