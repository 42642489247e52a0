// Secrets for ranks that are processes: API keys, tokens, the secret of the group. Every user of
// the machine can read a rank's command line. All processes of the same user, and the rank's
// children, can read its environment. So secrets are in neither of these. Instead, the process
// that starts the ranks keeps them in a memory file that only it holds open. An environment
// variable contains the file's path, which a rank can open as a process of the same user.
#pragma once

#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// Environment variable of ranks, for example "/proc/4711/fd/12".
inline constexpr const char* kSecretsVariable = "SLUICE_SECRETS_FILE";

// Whether an environment variable contains a secret that this program reads.
bool IsSecretVariable(const std::string& name);

// Returns the command line without secret options and their values. REQUIRES: `settings` were read
// from it.
Result<std::vector<std::string>> WithoutSecrets(const std::vector<std::string>& command,
                                                const options::Settings& settings);

// Ownership: destroying it removes the file, so it must outlive the start of the ranks.
class RankSecrets {
 public:
  // Stores secrets that were given by flags, and those in this process's environment.
  static Result<RankSecrets> Keep(const options::Settings& settings);
  // Returns the value for kSecretsVariable.
  std::string path() const;

 private:
  explicit RankSecrets(OwnedFd file) : file_(std::move(file)) {}

  OwnedFd file_;
};

// If this process is a rank with kSecretsVariable: sets the variables in the file, so that options
// can be read from them. Removes kSecretsVariable. REQUIRES: there is only one thread.
Status TakeRankSecrets();

}  // namespace sluice::cli
