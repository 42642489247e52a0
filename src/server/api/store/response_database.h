// The SQLite file with the responses that survive a restart, in a separate folder.
//
// The file is read only at the start. Afterwards ResponseStore, whose contents the file mirrors,
// serves all reads. Each change is a transaction in a write-ahead log and is in the file when the
// call returns, so a killed process loses nothing. A power failure may lose the changes of the last
// seconds, but no older ones. Calls wait for the disk and are made on worker threads.
//
// The file is accessible only to its owner, has a version, and is locked as long as the object
// lives: a second server is refused. A checksum per row detects changed contents.
//
// The file is not trusted. Its schema must equal the text in this program; triggers and views do
// not run, and SQLite checks every page before a row is read. The file's size alone bounds the cost
// of these checks. The file contains the HMAC secret and a hash of each owner's API key, so anyone
// who can read it can test guesses of API keys.
//
// Thread safety: one call at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/api/store/stored_response.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sluice {

class ResponseDatabase {
 public:
  static constexpr size_t kSecretBytes = 32;

  // Opens the file in `folder`; creates folder and file if they do not exist. Errors name the file:
  // kInvalidArgument if it cannot be read or written, or belongs to another program or version;
  // kInvalidData if it is damaged; kUnavailable if another process has it open.
  static Result<std::unique_ptr<ResponseDatabase>> Open(const std::filesystem::path& folder);

  const std::filesystem::path& file() const { return file_; }
  // Random bytes that are constant for the lifetime of the file.
  const std::vector<unsigned char>& secret() const { return secret_; }

  // Calls `take` with each response, oldest first. `is_over`: whether it is complete.
  Status Read(const std::function<void(StoredResponse::Content content, bool is_over)>& take);
  // In one transaction: removes the responses in `removed` that exist and, unless `response` is
  // null, appends `response` or replaces the response with its id. Changes nothing on an error.
  Status Write(const StoredResponse* response, std::span<const std::string> removed);

 private:
  struct Close {
    void operator()(sqlite3* database) const;
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Close>;

  explicit ResponseDatabase(std::filesystem::path file) : file_(std::move(file)) {}
  Status Connect();
  Status Restrict();
  Result<bool> IsNew();
  Status Create();
  Status CheckSchema();
  Status CheckPages();
  Status ReadSecret();
  Status Execute(const char* sql);
  Status Step(sqlite3_stmt* statement);
  Status Put(const StoredResponse& response);
  Status ChangeRows(const StoredResponse* response, std::span<const std::string> removed);
  Result<Statement> Prepare(const char* sql);
  Result<int64_t> Number(const char* sql);
  // Returns the error for SQLite's result `code`, explained for the operator.
  tl::unexpected<Error> Failure(int code) const;
  tl::unexpected<Error> Damaged(std::string_view what) const;

  const std::filesystem::path file_;
  // The number of times that SQLite may still run kStepsBetweenChecks steps before the check of the
  // file ends.
  int64_t steps_left_ = 0;
  std::unique_ptr<sqlite3, Close> database_;
  std::vector<unsigned char> secret_;
  Statement put_, remove_;  // destroyed before the database
};

}  // namespace sluice
