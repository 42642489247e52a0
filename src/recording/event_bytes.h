// Writes and reads the fields of recorded events as bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/shared_list.h"

namespace sluice::recording {

// Integers are encoded as LEB128, signed ones in zigzag form. Doubles and floats are stored as 8 or
// 4 bytes, little endian. Strings and lists begin with their length. A struct has a function
// `Fields(archive, event)` that passes its fields to `archive` in order; FieldWriter and
// FieldReader both use it.
class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}

  template <typename... T>
  void operator()(const T&... values) {
    (Put(values), ...);
  }

  void PutVarint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }

 private:
  void Put(bool value) { out_.push_back(value ? 1 : 0); }
  template <typename T>
  requires std::is_integral_v<T>
  void Put(T value) {
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      PutVarint((static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63));
    } else {
      PutVarint(value);
    }
  }
  template <typename T>
  requires std::is_floating_point_v<T>
  void Put(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out_.append(bytes, sizeof value);
  }
  template <typename T>
  requires std::is_enum_v<T>
  void Put(T value) { PutVarint(static_cast<uint64_t>(value)); }
  void Put(const std::string& value) {
    PutVarint(value.size());
    out_ += value;
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    PutVarint(values.size());
    for (const T& value : values) Put(value);
  }
  template <typename T>
  void Put(const SharedList<T>& values) {
    PutVarint(values.size());
    for (const T& value : values) Put(value);
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }
  template <typename A, typename B>
  void Put(const std::pair<A, B>& value) {
    Put(value.first);
    Put(value.second);
  }
  template <typename T>
  requires std::is_class_v<T> && requires(FieldWriter& writer, T& value) { Fields(writer, value); }
  void Put(const T& value) { Fields(*this, const_cast<T&>(value)); }

  std::string& out_;
};

// Reads what FieldWriter wrote, from untrusted bytes. Its memory use is proportional to the bytes
// read so far, at most 48 times as much. After the first error, ok() is false and values are
// unspecified.
class FieldReader {
 public:
  explicit FieldReader(std::string_view in) : in_(in) {}

  template <typename... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }

  bool ok() const { return ok_; }
  // Whether all bytes were read without an error.
  bool done() const { return ok_ && in_.empty(); }

 private:
  uint64_t GetVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (in_.empty()) break;
      const auto byte = static_cast<unsigned char>(in_.front());
      in_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    in_ = {};
    return 0;
  }
  void Get(bool& value) {
    const uint64_t byte = GetVarint();
    value = byte == 1;
    if (byte > 1) ok_ = false;
  }
  template <typename T>
  requires std::is_integral_v<T>
  void Get(T& value) {
    const uint64_t read = GetVarint();
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>((read >> 1) ^ (~(read & 1) + 1));
      value = static_cast<T>(wide);
      if (static_cast<int64_t>(value) != wide) ok_ = false;
    } else {
      value = static_cast<T>(read);
      if (static_cast<uint64_t>(value) != read) ok_ = false;
    }
  }
  template <typename T>
  requires std::is_floating_point_v<T>
  void Get(T& value) {
    value = 0;
    if (in_.size() < sizeof value) {
      ok_ = false;
      return;
    }
    std::memcpy(&value, in_.data(), sizeof value);
    in_.remove_prefix(sizeof value);
  }
  template <typename T>
  requires std::is_enum_v<T>
  void Get(T& value) {
    const uint64_t read = GetVarint();
    value = static_cast<T>(read);
    if (read > 0xFF) ok_ = false;
  }
  void Get(std::string& value) {
    const uint64_t size = GetVarint();
    if (!ok_ || size > in_.size()) {
      ok_ = false;
      return;
    }
    value.assign(in_.substr(0, size));
    in_.remove_prefix(size);
  }
  template <typename T>
  void Get(std::vector<T>& values) {
    values.clear();
    // An element takes at least one byte. The list grows with the elements that were read, instead
    // of being allocated for the stated number.
    for (uint64_t left = GetVarint(); ok_ && left > 0; --left) {
      if (left > in_.size()) {
        ok_ = false;
        return;
      }
      Get(values.emplace_back());
    }
  }
  template <typename T>
  void Get(SharedList<T>& values) {
    std::vector<T> list;
    Get(list);
    if (!list.empty()) values = std::move(list);
  }
  template <typename T>
  void Get(std::optional<T>& value) {
    bool has = false;
    Get(has);
    value.reset();
    if (has && ok_) Get(value.emplace());
  }
  template <typename A, typename B>
  void Get(std::pair<A, B>& value) {
    Get(value.first);
    Get(value.second);
  }
  template <typename T>
  requires std::is_class_v<T> && requires(FieldReader& reader, T& value) { Fields(reader, value); }
  void Get(T& value) { Fields(*this, value); }

  std::string_view in_;
  bool ok_ = true;
};

}  // namespace sluice::recording
