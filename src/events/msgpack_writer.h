// Writes MessagePack, with the shortest encoding of each value
// (github.com/msgpack/msgpack/blob/master/spec.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// Appends to the caller's string, which must outlive the writer.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void Nil() { Byte(0xc0); }
  void Unsigned(uint64_t value);
  void Double(double value);
  void Text(std::string_view text);  // UTF-8
  // Begins an array or a map of `size` elements. Then write the elements or, for a map, alternating
  // keys and values.
  void Array(size_t size) { Head(size, 0x90, 0xdc); }
  void Map(size_t size) { Head(size, 0x80, 0xde); }

 private:
  void Byte(uint8_t byte) { out_.push_back(static_cast<char>(byte)); }
  void BigEndian(uint64_t value, int bytes);
  // Writes the head of an array or a map. A size below 16 is part of the byte `small`; byte `large`
  // precedes 16 bits of size, `large` + 1 precedes 32 bits.
  void Head(size_t size, uint8_t small, uint8_t large);

  std::string& out_;
};

}  // namespace sluice
