#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "cli/rank_secrets.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

// Returns the child's environment, as NAME=VALUE.
std::vector<std::string> EnvironmentOfChild(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (const auto& [name, value] : options::ProcessEnvironment()) {
    if (!IsSecretVariable(name) && !added.contains(name)) result.push_back(name + "=" + value);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string FindInPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  if (path == nullptr) return "";
  for (const std::string_view folder : options::Split(path, ':')) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

Result<pid_t> StartProcess(const std::string& program, std::vector<std::string> words,
                           const ChildOptions& options) {
  std::vector<std::string> environment = EnvironmentOfChild(options.variables);
  const std::vector<char*> arguments = PointersTo(words);
  const std::vector<char*> variables = PointersTo(environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (options.input >= 0) {
    posix_spawn_file_actions_adddup2(&files, options.input, STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &files, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{} cannot be started: {}", program, std::strerror(error)));
  }
  return child;
}

int WaitForProcess(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace sluice::cli
