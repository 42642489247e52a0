// Parses one request into head and body. Internal to this folder, because it includes Beast.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/beast/http/basic_parser.hpp>

#include "base/ascii.h"
#include "base/json_place.h"
#include "server/http/http_types.h"

namespace sluice {

// Uses Beast's grammar but its own storage. A field may be as long as the head, while Beast's
// container throws above 64 KiB. The body grows with the received bytes, not with the announced
// length. Thread safety: one thread at a time.
class HttpRequestParser : public boost::beast::http::basic_parser<true> {
 public:
  // Reserves the body's memory in `memory` before allocating it. If the memory is refused, the
  // error is errc::not_enough_memory.
  explicit HttpRequestParser(std::shared_ptr<RequestMemory> memory) : lease_(std::move(memory)) {}

  // A head with more fields is refused as too large.
  static constexpr size_t kMaxFields = 1000;

  // Beast does not support the method QUERY.
  bool known_method() const {
    return verb_ != boost::beast::http::verb::unknown || method_ == "QUERY";
  }
  const std::string& method() const { return method_; }
  const std::string& target() const { return target_; }
  int version() const { return version_; }               // 10 or 11
  std::vector<HttpHeader>& fields() { return fields_; }  // fields of the head, as received
  // If it is not empty, json::kTextPadding bytes after it are readable.
  std::string& body() { return body_; }
  MemoryLease& lease() { return lease_; }  // memory of the body
  // The size of the last reservation that was attempted.
  uint64_t wanted_bytes() const { return wanted_bytes_; }

 private:
  using error_code = boost::system::error_code;
  using string_view = boost::beast::string_view;

  void on_request_impl(boost::beast::http::verb method, string_view method_text, string_view target,
                       int version, error_code& error) override {
    error = {};
    verb_ = method;
    method_ = std::string(method_text);
    target_ = std::string(target);
    version_ = version;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(boost::beast::http::field, string_view name, string_view value,
                     error_code& error) override {
    error = {};
    if (is_header_done()) return;  // a trailer must not become a field of the head
    if (fields_.size() >= kMaxFields) {
      error = boost::beast::http::error::header_limit;
      return;
    }
    fields_.push_back({AsciiLower(name), std::string(value)});
  }
  void on_header_impl(error_code& error) override { error = {}; }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code& error) override {
    error = {};
  }
  size_t on_body_impl(string_view body, error_code& error) override { return Append(body, error); }
  void on_chunk_header_impl(uint64_t, string_view, error_code& error) override { error = {}; }
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code& error) override {
    return Append(body, error);
  }
  void on_finish_impl(error_code& error) override { error = {}; }

  size_t Append(string_view part, error_code& error) {
    error = {};
    if (part.empty()) return 0;
    const size_t size = body_.size() + part.size();
    if (size + json::kTextPadding > body_.capacity() && !Grow(size)) {
      error = make_error_code(boost::system::errc::not_enough_memory);
      return 0;
    }
    body_.append(part.data(), part.size());
    return part.size();
  }

  // Doubles the capacity, but not beyond the announced length.
  bool Grow(size_t size) {
    size_t space = std::max(2 * body_.size(), size);
    if (const auto rest = content_length_remaining())
      space = std::min<size_t>(space, std::max<size_t>(size, body_.size() + *rest));
    space += json::kTextPadding;
    // The old and the new buffer exist at the same time while the bytes are copied.
    wanted_bytes_ = body_.capacity() + space;
    if (!lease_.TryResize(wanted_bytes_)) return false;
    body_.reserve(space);
    lease_.Shrink(body_.capacity());
    return true;
  }

  boost::beast::http::verb verb_ = boost::beast::http::verb::unknown;
  std::string method_, target_;
  int version_ = 11;
  std::vector<HttpHeader> fields_;
  std::string body_;
  MemoryLease lease_;
  uint64_t wanted_bytes_ = 0;
};

}  // namespace sluice
