#include "cli/rank_secrets.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "options/sources.h"
#include "options/values.h"

namespace sluice::cli {
namespace {

// Secret variables that do not set an option in the table.
constexpr std::array<std::string_view, 3> kOtherSecrets = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
                                                           "OPENAI_API_KEY"};
constexpr size_t kMostSecretBytes = size_t{1} << 20;

}  // namespace

bool IsSecretVariable(const std::string& name) {
  static const std::vector<std::string> variables = options::SecretVariables();
  return std::find(variables.begin(), variables.end(), name) != variables.end() ||
         std::find(kOtherSecrets.begin(), kOtherSecrets.end(), name) != kOtherSecrets.end();
}

Result<std::vector<std::string>> WithoutSecrets(const std::vector<std::string>& command,
                                                const options::Settings& settings) {
  // The subcommand is parsed like a positional argument.
  const std::vector<std::string> words(command.begin() + 1, command.end());
  ASSIGN_OR_RETURN(const options::CommandLine line,
                   options::ReadCommandLine(words, options::kServe, settings.dialect()));
  std::vector<std::string> result{command.front()};
  for (size_t i = 0; i < words.size(); ++i) {
    if (!std::binary_search(line.secrets.begin(), line.secrets.end(), i))
      result.push_back(words[i]);
  }
  return result;
}

Result<RankSecrets> RankSecrets::Keep(const options::Settings& settings) {
  std::map<std::string, std::string> secrets = options::SecretFlags(settings);
  for (const auto& [name, value] : options::ProcessEnvironment()) {
    // A flag takes precedence over its variable.
    if (IsSecretVariable(name)) secrets.emplace(name, value);
  }
  std::string text;
  for (const auto& [name, value] : secrets) text += fmt::format("{}={}", name, value) + '\0';
  ASSIGN_OR_RETURN(OwnedFd file,
                   OwnFd(memfd_create("sluice-secrets", MFD_CLOEXEC), "memfd_create"));
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(file.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return Fail(ErrorCode::kInternal, fmt::format("memfd: {}", std::strerror(errno)));
    written += static_cast<size_t>(count);
  }
  return RankSecrets(std::move(file));
}

std::string RankSecrets::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), file_.get());
}

Status TakeRankSecrets() {
  const char* const path = std::getenv(kSecretsVariable);
  if (path == nullptr) return {};
  const OwnedFd file(open(path, O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> bytes{};
  ssize_t count = file ? 1 : -1;
  while (count > 0 && text.size() < kMostSecretBytes) {
    count = read(file.get(), bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
    if (count < 0 && errno == EINTR) count = 1;
  }
  if (count != 0) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{}: the secrets of the process that started this rank cannot be read "
                            "({}): run the ranks as its user, with /proc",
                            path, std::strerror(errno)),
                kSecretsVariable);
  }
  for (const std::string_view entry : options::Split(text, '\0')) {
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    setenv(std::string(entry.substr(0, equals)).c_str(),
           std::string(entry.substr(equals + 1)).c_str(), 1);
  }
  unsetenv(kSecretsVariable);
  return {};
}

}  // namespace sluice::cli
