// Writes MessagePack: the smallest form of each value, as its specification lists them
// (github.com/msgpack/msgpack/blob/master/spec.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Appends to a text of the caller's.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void Nil() { Byte(0xc0); }
  void Unsigned(uint64_t value);
  void Double(double value);
  void Text(std::string_view text);  // UTF-8
  // So many values follow; of a map, so many keys, each with its value.
  void Array(size_t size) { Head(size, 0x90, 0xdc); }
  void Map(size_t size) { Head(size, 0x80, 0xde); }

 private:
  void Byte(uint8_t byte) { out_.push_back(static_cast<char>(byte)); }
  void BigEndian(uint64_t value, int bytes);
  // A size below 16 is part of the head `small`; `large` has 16 bits of it, `large` + 1 has 32.
  void Head(size_t size, uint8_t small, uint8_t large);

  std::string& out_;
};

}  // namespace sluice
