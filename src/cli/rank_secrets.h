// Secrets for ranks that are processes: API keys, tokens, the secret of the group. A rank's command
// line can be read by every user of the machine, and its environment by every process of its user
// and whoever it starts; so both go without, and the process that starts the ranks keeps the
// secrets in a file in memory that it alone holds open. A rank opens it by the path that a variable
// names, as a process of the same user may.
#pragma once

#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/result.h"
#include "options/settings.h"

namespace sluice::cli {

// In the environment of ranks: "/proc/4711/fd/12".
inline constexpr const char* kSecretsVariable = "SLUICE_SECRETS_FILE";

// Whether a variable of the environment holds a secret that this program reads.
bool IsSecretVariable(const std::string& name);

// A command line without the flags of secret options and their values. REQUIRES: `settings` were
// read from it.
Result<std::vector<std::string>> WithoutSecrets(const std::vector<std::string>& command,
                                                const options::Settings& settings);

// Ownership: the file is gone with it, so it outlives the start of the ranks.
class RankSecrets {
 public:
  // The secrets of `settings` that flags gave, and those of this process's environment.
  static Result<RankSecrets> Keep(const options::Settings& settings);
  // For kSecretsVariable.
  std::string path() const;

 private:
  explicit RankSecrets(OwnedFd file) : file_(std::move(file)) {}

  OwnedFd file_;
};

// Where this process is a rank with kSecretsVariable: sets the variables that the file holds, so
// that options are read from them. Removes kSecretsVariable. REQUIRES: there is one thread.
Status TakeRankSecrets();

}  // namespace sluice::cli
