#include "cli/launch_nodes.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/firewall.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "cli/launch_ranks.h"
#include "cli/progress.h"
#include "cli/rank_secrets.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "options/values.h"
#include "parallel/arrivals.h"
#include "parallel/listen_guard.h"
#include "parallel/node_link.h"
#include "parallel/orted_command.h"

namespace sluice::cli {
namespace {

using LaunchClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswerTime(5);  // time limit for receiving a message
constexpr std::chrono::milliseconds kTimeBetweenTries(200);
// Time for a daemon to end after its group has ended.
constexpr std::chrono::seconds kTimeToEndNode(10);
constexpr const char* kAgentVariable = "SLUICE_LAUNCH_SOCKET";
constexpr std::chrono::seconds kAgentTime(1);  // time limit for receiving an agent's arguments
constexpr size_t kMostAgentBytes = 65536;

struct NodeSettings {
  int num_nodes = 1;
  int node = 0;
  int num_ranks = 1;
  std::string first;  // address of the first machine
  uint16_t port = 0;
  std::string secret;
  LaunchClock::time_point deadline;

  int ranks_a_node() const { return num_ranks / num_nodes; }
};

Result<NodeSettings> ReadNodeSettings(const options::Settings& settings, int num_ranks) {
  NodeSettings node;
  node.num_nodes = static_cast<int>(*settings.Integer("nnodes"));
  node.node = static_cast<int>(*settings.Integer("node-rank"));
  node.num_ranks = num_ranks;
  node.first = settings.TextOr("master-addr");
  node.port = static_cast<uint16_t>(*settings.Integer("master-port"));
  node.secret = settings.TextOr("distributed-secret");
  node.deadline = LaunchClock::now() +
                  std::chrono::duration_cast<LaunchClock::duration>(std::chrono::duration<double>(
                      *settings.Number("distributed-timeout-seconds")));
  const auto wrong = [](std::string message, const char* option) {
    return Fail(ErrorCode::kInvalidArgument, std::move(message), option);
  };
  if (node.node >= node.num_nodes) {
    return wrong(fmt::format("--node-rank: expected 0 to {} of --nnodes {}, found {}",
                             node.num_nodes - 1, node.num_nodes, node.node),
                 "node_rank");
  }
  if (num_ranks % node.num_nodes != 0) {
    return wrong(fmt::format("--nnodes {}: {} ranks (--tensor-parallel-size times "
                             "--pipeline-parallel-size) cannot be divided evenly over the machines",
                             node.num_nodes, num_ranks),
                 "nnodes");
  }
  if (node.first.empty() && node.node > 0)
    return wrong("--node-rank needs --master-addr, the address of the first machine",
                 "master_addr");
  if (node.secret.empty()) {
    return wrong(
        "--nnodes needs a secret that all machines share, since each machine starts the ranks that "
        "the first one requests: set SLUICE_DISTRIBUTED_SECRET to the same text on all",
        "distributed_secret");
  }
  return node;
}

std::string OwnFile() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::string ProgramLine() {
  return fmt::format("{} ({})", Version(), Commit());
}

// Returns the first message of a machine: program version, its number, number of machines, number
// of ranks, one per line.
std::string HelloOf(const NodeSettings& node) {
  return fmt::format("{}\n{}\n{}\n{}", ProgramLine(), node.node, node.num_nodes, node.num_ranks);
}

// Returns the reason why the machine may not take part; "" if it may.
std::string RefusalOf(const NodeSettings& node, const std::string& hello,
                      const std::map<int, NodeLink>& others, int& number) {
  const std::vector<std::string_view> lines = options::Split(hello, '\n');
  const int64_t count = lines.size() == 4 ? options::ParseInteger(lines[1]).value_or(-1) : -1;
  if (count < 0)
    return "it uses a different version of the protocol: install the same version on all machines";
  number = static_cast<int>(std::min<int64_t>(count, 1 << 20));
  if (lines[0] != ProgramLine()) {
    return fmt::format(
        "it runs {}, the first machine runs {}: install the same version on all machines", lines[0],
        ProgramLine());
  }
  if (lines[2] != std::to_string(node.num_nodes) || lines[3] != std::to_string(node.num_ranks)) {
    return fmt::format(
        "its options specify {} machines and {} ranks, those of the first machine {} and {}",
        lines[2], lines[3], node.num_nodes, node.num_ranks);
  }
  if (number < 1 || number >= node.num_nodes || others.contains(number)) {
    return fmt::format(
        "another machine has --node-rank {}: give each machine a different number from 0 to {}",
        number, node.num_nodes - 1);
  }
  return "";
}

std::vector<int> MissingNodes(const NodeSettings& node, const std::map<int, NodeLink>& others) {
  std::vector<int> missing;
  for (int other = 1; other < node.num_nodes; ++other) {
    if (!others.contains(other)) missing.push_back(other);
  }
  return missing;
}

// Returns the address at which the first machine waits: --master-addr, else its only address.
Result<std::string> AddressOfFirst(const NodeSettings& node) {
  if (!node.first.empty()) {
    auto address = AddressOfHost(node.first);
    // A pod's host name cannot be resolved until some time after the pod starts.
    while (!address && LaunchClock::now() < node.deadline) {
      std::this_thread::sleep_for(kTimeBetweenTries);
      address = AddressOfHost(node.first);
    }
    if (!address) {
      return Fail(ErrorCode::kUnavailable, "--master-addr: " + address.error().message,
                  "master_addr");
    }
    if (address->starts_with("127.") && *address != node.first) {
      LOG_WARNING(
          "serve",
          "--master-addr {} is {} on this machine, an address that other machines cannot reach",
          node.first, *address);
    }
    return address;
  }
  const std::vector<std::string> own = OwnAddresses();
  if (own.size() > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--nnodes: this machine has the addresses {}; set --master-addr to the "
                            "one that the others can reach",
                            fmt::join(own, ", ")),
                "master_addr");
  }
  return own.empty() ? "127.0.0.1" : own.front();
}

Result<std::map<int, NodeLink>> WaitForNodes(const NodeSettings& node) {
  const SignalWatcher watcher([](int signal) { EndAtOnce(128 + signal); });
  ASSIGN_OR_RETURN(const std::string own, AddressOfFirst(node));
  ASSIGN_OR_RETURN(const Listener listener, ListenAt(own, node.port));
  LOG_INFO("serve", "waiting at {}:{} for {} other machines", own, node.port, node.num_nodes - 1);
  Arrivals arrivals(listener, NodeLink::kAnswerBytes, NodeLink::Challenge);
  std::map<int, NodeLink> others;
  while (static_cast<int>(others.size()) + 1 < node.num_nodes) {
    auto arrival = arrivals.Next(node.deadline);
    if (!arrival) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the machines with --node-rank {} did not connect to port {} of {} "
                              "({}): start them, with the --master-addr of this machine",
                              fmt::join(MissingNodes(node, others), ", "), node.port, own,
                              arrival.error().message));
    }
    const std::string address = arrival->address;
    const auto soon = LaunchClock::now() + kAnswerTime;
    auto link = NodeLink::Accept(*std::move(arrival), node.secret, soon);
    if (!link) {
      LOG_WARNING("serve", "{} is refused: {}", address, link.error().message);
      continue;
    }
    const auto hello = link->Receive(soon);
    if (!hello) continue;
    int number = 0;
    const std::string refusal = RefusalOf(node, *hello, others, number);
    static_cast<void>(link->Send(refusal.empty() ? "ok" : refusal, soon));
    if (!refusal.empty()) {
      LOG_WARNING("serve", "{} is refused: {}", address, refusal);
      continue;
    }
    LOG_INFO("serve", "machine {} of {} is at {}", number, node.num_nodes, address);
    KeepAlive(link->socket());
    others.emplace(number, *std::move(link));
  }
  return others;
}

// Returns the name of an abstract socket, which leaves no file. Serve() checks that the peer is the
// same user.
sockaddr_un AgentAddress(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 2));
  return address;
}

OwnedFd AgentSocket() {
  return OwnedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Passes mpirun's requests on to other machines, and reports when a machine is lost.
class NodeDesk {
 public:
  static Result<std::unique_ptr<NodeDesk>> Open(std::map<int, NodeLink> others) {
    std::random_device random;
    const std::string name =
        fmt::format("sluice-launch-{}-{:08x}{:08x}", getpid(), random(), random());
    OwnedFd socket = AgentSocket();
    const sockaddr_un address = AgentAddress(name);
    if (!socket ||
        bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ||
        listen(socket.get(), SOMAXCONN) != 0) {
      return Fail(ErrorCode::kInternal, fmt::format("a unix socket: {}", std::strerror(errno)));
    }
    ASSIGN_OR_RETURN(OwnedFd wake, OwnFd(eventfd(0, EFD_CLOEXEC), "eventfd"));
    setenv(kAgentVariable, name.c_str(), 1);
    return std::unique_ptr<NodeDesk>(
        new NodeDesk(std::move(socket), std::move(others), std::move(wake)));
  }

  // Notifies the machines that the group has ended, with its exit code.
  void Close(int code) {
    stopping_ = true;
    eventfd_write(wake_.get(), 1);
    thread_.join();
    for (auto& [number, link] : others_)
      static_cast<void>(link.Send(fmt::format("end {}", code), LaunchClock::now() + kAnswerTime));
  }

 private:
  NodeDesk(OwnedFd socket, std::map<int, NodeLink> others, OwnedFd wake)
      : agents_(std::move(socket)),
        others_(std::move(others)),
        wake_(std::move(wake)),
        thread_([this] { Run(); }) {}

  void Run() {
    bool any_lost = false;
    while (!stopping_) RunGuarded("serve", "to start daemons", [&] { ServeOnce(any_lost); });
  }

  // Waits for an event. Sets `any_lost` if a machine was lost; the other machines then also end.
  void ServeOnce(bool& any_lost) {
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}, {agents_.get(), POLLIN, 0}};
    // A machine sends nothing while its group runs, so data means that it is lost.
    for (const auto& [number, link] : others_) {
      if (!any_lost) polled.push_back({link.socket().get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) <= 0) return;
    if (polled[1].revents != 0) Serve();
    auto other = others_.begin();
    for (size_t i = 2; i < polled.size() && !stopping_ && !any_lost; ++i, ++other) {
      if (polled[i].revents == 0) continue;
      any_lost = true;
      LOG_ERROR("serve", "machine {} has ended or cannot be reached", other->first);
    }
  }

  // Serves one agent: reads NUL-terminated arguments; replies "" or an error.
  void Serve() {
    const OwnedFd agent(accept4(agents_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!agent) return;
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (getsockopt(agent.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
        peer.uid != geteuid()) {
      return;
    }
    // mpirun's agent sends its arguments immediately and closes its sending side. A client that has
    // not done so within kAgentTime is ignored.
    const auto text = ReceiveToEndBy(agent, kMostAgentBytes, LaunchClock::now() + kAgentTime);
    if (!text) return;
    const Status passed = PassOn(*text);
    const std::string answer = passed ? "" : passed.error().message;
    if (!passed) LOG_ERROR("serve", "a daemon cannot be started: {}", answer);
    static_cast<void>(send(agent.get(), answer.data(), answer.size(), MSG_NOSIGNAL));
  }

  Status PassOn(const std::string& text) {
    std::vector<std::string> words;
    for (const std::string_view word : options::Split(text, '\0')) words.emplace_back(word);
    if (words.empty()) return Fail(ErrorCode::kInvalidData, "mpirun's agent sent no arguments");
    for (auto& [number, link] : others_) {
      if (PeerAddress(link.socket()) != words.front()) continue;
      ASSIGN_OR_RETURN(const OrtedCommand command, ParseOrtedCommand(std::span(words).subspan(1)));
      return link.Send("run\n" + EncodeOrtedCommand(command), LaunchClock::now() + kAnswerTime);
    }
    return Fail(ErrorCode::kInvalidArgument, fmt::format("no machine waits at {}", words.front()));
  }

  const OwnedFd agents_;
  std::map<int, NodeLink> others_;
  const OwnedFd wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last member, because it uses all members above
};

Result<int> LaunchAsFirst(const options::Settings& settings, const NodeSettings& node) {
  ASSIGN_OR_RETURN(auto others, WaitForNodes(node));
  // Uses the address at which the other machines have reached this one, because it belongs to the
  // network between them.
  const std::string own = LocalAddress(others.begin()->second.socket());
  std::vector<std::string> hosts{fmt::format("{}:{}", own, node.ranks_a_node())};
  for (const auto& [number, link] : others)
    hosts.push_back(fmt::format("{}:{}", PeerAddress(link.socket()), node.ranks_a_node()));
  SetMpiEnvironment(/*several_machines=*/true, NetworkOf(own));
  setenv("OMPI_MCA_plm", "rsh", 1);
  setenv("OMPI_MCA_plm_rsh_agent", fmt::format("{} {}", OwnFile(), kLaunchAgent).c_str(), 1);
  setenv("OMPI_MCA_plm_rsh_no_tree_spawn", "1", 1);
  ASSIGN_OR_RETURN(const auto desk, NodeDesk::Open(std::move(others)));
  auto code = LaunchRanks(settings, node.num_ranks, {.address = own, .hosts = hosts});
  desk->Close(code ? *code : 1);
  return code;
}

// Connects to the first machine as soon as it is reachable.
Result<NodeLink> LinkToFirst(const NodeSettings& node) {
  LOG_INFO("serve", "machine {} of {}: connecting to {} port {}", node.node, node.num_nodes,
           node.first, node.port);
  while (true) {
    std::string problem;
    const auto address = AddressOfHost(node.first);
    if (address) {
      const auto soon = std::min(node.deadline, LaunchClock::now() + kAnswerTime);
      auto socket = ConnectBy(*address, node.port, soon);
      if (socket) {
        auto link =
            NodeLink::Open(*std::move(socket), node.secret, LaunchClock::now() + 2 * kAnswerTime);
        if (link || link.error().code != ErrorCode::kUnavailable) return link;
        problem = link.error().message;
      } else {
        problem = socket.error().message;
      }
    } else {
      problem = address.error().message;
    }
    if (LaunchClock::now() > node.deadline) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("--master-addr {} does not answer at port {} ({}): start the first "
                              "machine, and allow the others to connect to it",
                              node.first, node.port, problem),
                  "master_addr");
    }
    std::this_thread::sleep_for(kTimeBetweenTries);
  }
}

// A daemon and its ranks, which form a process group.
class Daemon {
 public:
  // Takes ownership of the process. Ends it on failure.
  static Result<std::unique_ptr<Daemon>> Of(pid_t process) {
    auto fd = OwnFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)), "pidfd_open");
    if (!fd) {
      kill(-process, SIGKILL);
      WaitForProcess(process);
      return tl::unexpected<Error>(std::move(fd).error());
    }
    return std::unique_ptr<Daemon>(new Daemon(process, *std::move(fd)));
  }
  ~Daemon() {
    if (process_ > 0) End();
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  int fd() const { return fd_.get(); }
  int Wait() { return WaitForProcess(std::exchange(process_, 0)); }
  // Waits some time for the daemon to exit, then kills it.
  int End() {
    kill(process_, SIGTERM);
    pollfd polled{fd_.get(), POLLIN, 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kTimeToEndNode);
    if (poll(&polled, 1, static_cast<int>(limit.count())) <= 0) kill(-process_, SIGKILL);
    return Wait();
  }

 private:
  Daemon(pid_t process, OwnedFd fd) : process_(process), fd_(std::move(fd)) {}

  pid_t process_;
  OwnedFd fd_;
};

// Starts Open MPI's daemon with the command in `message`.
Result<std::unique_ptr<Daemon>> StartDaemon(const std::string& message,
                                            const ChildOptions& options) {
  ASSIGN_OR_RETURN(const OrtedCommand command, DecodeOrtedCommand(message));
  const std::string orted = FindInPath("orted");
  if (orted.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "orted is not in PATH: install Open MPI (Debian: openmpi-bin)");
  }
  std::vector<std::string> words{"sluice", std::string(kLaunchDaemon), std::to_string(getpid()),
                                 orted};
  for (std::string& word : OrtedWords(command)) words.push_back(std::move(word));
  ASSIGN_OR_RETURN(const pid_t process, StartProcess(OwnFile(), std::move(words), options));
  return Daemon::Of(process);
}

// `options`: used to start the daemon.
Result<int> FollowFirst(const NodeSettings& node, NodeLink& link, int interrupted,
                        const ChildOptions& options) {
  std::unique_ptr<Daemon> daemon;
  while (true) {
    pollfd polled[3] = {{interrupted, POLLIN, 0},
                        {link.socket().get(), POLLIN, 0},
                        {daemon ? daemon->fd() : -1, POLLIN, 0}};
    if (poll(polled, 3, -1) <= 0) continue;
    if (polled[0].revents != 0) return 128 + SIGTERM;
    if (polled[1].revents != 0) {
      const auto message = link.Receive(LaunchClock::now() + kAnswerTime);
      if (!message) {
        return Fail(
            ErrorCode::kInternal,
            fmt::format("the first machine, {}, has ended or cannot be reached, and machine "
                        "{} ends with it",
                        node.first, node.node));
      }
      if (message->starts_with("end ")) {
        if (daemon) daemon->End();
        return static_cast<int>(options::ParseInteger(message->substr(4)).value_or(1));
      }
      if (!message->starts_with("run\n") || daemon) continue;
      ASSIGN_OR_RETURN(daemon, StartDaemon(message->substr(4), options));
    } else if (polled[2].revents != 0) {
      const int code = daemon->Wait();
      daemon.reset();
      // The first machine reports how the group ended.
      const auto message = link.Receive(LaunchClock::now() + kTimeToEndNode);
      if (message && message->starts_with("end "))
        return static_cast<int>(options::ParseInteger(message->substr(4)).value_or(1));
      return Fail(ErrorCode::kInternal,
                  fmt::format("the ranks of machine {} have ended (code {})", node.node, code));
    }
  }
}

Result<int> LaunchAsOther(const options::Settings& settings, const NodeSettings& node) {
  ASSIGN_OR_RETURN(const RankSecrets secrets, RankSecrets::Keep(settings));
  ASSIGN_OR_RETURN(const OwnedFd interrupted, OwnFd(eventfd(0, EFD_CLOEXEC), "eventfd"));
  std::atomic<bool> is_linked{false};
  const SignalWatcher watcher([&](int signal) {
    if (!is_linked) EndAtOnce(128 + signal);
    eventfd_write(interrupted.get(), 1);
  });
  ASSIGN_OR_RETURN(NodeLink link, LinkToFirst(node));
  is_linked = true;
  RETURN_IF_ERROR(link.Send(HelloOf(node), LaunchClock::now() + kAnswerTime));
  ASSIGN_OR_RETURN(const std::string answer, link.Receive(LaunchClock::now() + 2 * kAnswerTime));
  if (answer != "ok") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("machine {} is refused by {}: {}", node.node, node.first, answer));
  }
  KeepAlive(link.socket());
  const std::string own = LocalAddress(link.socket());
  SetMpiEnvironment(/*several_machines=*/true, NetworkOf(own));
  ChildOptions options;
  ASSIGN_OR_RETURN(options.variables, ListenGuard(own));
  options.variables[kSecretsVariable] = secrets.path();
  LOG_INFO("serve", "the ranks of this machine listen for the others only at {}", own);
  return FollowFirst(node, link, interrupted.get(), options);
}

}  // namespace

bool IsOnSeveralNodes(const options::Settings& settings) {
  return settings.Integer("nnodes").value_or(1) > 1;
}

Result<int> LaunchOnNode(const options::Settings& settings, int num_ranks) {
  ASSIGN_OR_RETURN(const NodeSettings node, ReadNodeSettings(settings, num_ranks));
  return node.node == 0 ? LaunchAsFirst(settings, node) : LaunchAsOther(settings, node);
}

int RunLaunchAgent(const std::vector<std::string>& words) {
  const char* const name = std::getenv(kAgentVariable);
  if (name == nullptr || words.size() < 3) {
    PrintError(fmt::format("{} is only called by mpirun\n", kLaunchAgent));
    return 2;
  }
  std::string text;
  for (size_t i = 1; i < words.size(); ++i) text += words[i] + (i + 1 < words.size() ? '\0' : ' ');
  text.pop_back();
  const OwnedFd socket = AgentSocket();
  const sockaddr_un address = AgentAddress(name);
  if (!socket ||
      connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    PrintError(fmt::format("{}: {}\n", kLaunchAgent, std::strerror(errno)));
    return 1;
  }
  if (!SendAllBy(socket, std::as_bytes(std::span(text)), LaunchClock::now() + kAnswerTime))
    return 1;
  shutdown(socket.get(), SHUT_WR);
  char byte = 0;
  return recv(socket.get(), &byte, 1, 0) == 0 ? 0 : 1;
}

int RunLaunchDaemon(const std::vector<std::string>& words) {
  if (words.size() < 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (words[1] != std::to_string(getppid())) return 1;  // the parent has already ended
  std::vector<std::string> rest(words.begin() + 3, words.end());
  std::vector<char*> arguments;
  for (std::string& word : rest) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(words[2].c_str(), arguments.data());
  PrintError(fmt::format("{}: {}\n", words[2], std::strerror(errno)));
  return 1;
}

}  // namespace sluice::cli
