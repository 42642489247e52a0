// TLS settings that connections share: certificate, key, and which clients are accepted. Internal
// to this folder, because it includes OpenSSL.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <openssl/ssl.h>

#include "base/mutex.h"
#include "base/result.h"
#include "server/server_config.h"

namespace sluice {

using TlsContext = std::shared_ptr<SSL_CTX>;

// TLS 1.2 and later, HTTP/1.1 by ALPN, no renegotiation, no session cache. Errors name the option
// and the file.
Result<TlsContext> LoadTlsContext(const TlsConfig& config);

// The context for new connections, which can be replaced while the server runs; existing
// connections keep theirs. Thread safety: all methods may be called from any thread.
class TlsCertificates {
 public:
  static Result<std::unique_ptr<TlsCertificates>> Load(const TlsConfig& config);

  TlsContext context() const;
  // Reads the files again. If they are unusable, the old ones stay in use. Logs the outcome.
  void Reload();
  // Reloads if the files have changed, but only once they are the same in two consecutive calls:
  // certificate and key are not replaced at the same time.
  void RefreshIfChanged();

 private:
  // Identifies a version of a file by time, inode and size. It changes with every replacement.
  struct Stamp {
    int64_t seconds = 0, nanoseconds = 0;
    uint64_t inode = 0, size = 0;
    bool operator==(const Stamp&) const = default;
  };

  explicit TlsCertificates(const TlsConfig& config) : config_(config) {}
  std::vector<Stamp> Stamps() const;
  void ReloadLocked() REQUIRES(mutex_);

  const TlsConfig config_;
  mutable Mutex mutex_;
  TlsContext context_ GUARDED_BY(mutex_);
  std::vector<Stamp> loaded_ GUARDED_BY(mutex_);  // stamps before the last attempt to load
  std::vector<Stamp> seen_ GUARDED_BY(mutex_);    // stamps at the last check
};

}  // namespace sluice
