#include "events/msgpack_writer.h"

#include <bit>

namespace sluice {

void MsgpackWriter::BigEndian(uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) Byte(static_cast<uint8_t>(value >> (8 * i)));
}

void MsgpackWriter::Unsigned(uint64_t value) {
  if (value < 0x80) return Byte(static_cast<uint8_t>(value));
  const int log_bytes = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
  Byte(static_cast<uint8_t>(0xcc + log_bytes));
  BigEndian(value, 1 << log_bytes);
}

void MsgpackWriter::Double(double value) {
  Byte(0xcb);
  BigEndian(std::bit_cast<uint64_t>(value), 8);
}

void MsgpackWriter::Text(std::string_view text) {
  if (text.size() < 32) {
    Byte(static_cast<uint8_t>(0xa0 | text.size()));
  } else {
    const int log_bytes = text.size() <= 0xff ? 0 : text.size() <= 0xffff ? 1 : 2;
    Byte(static_cast<uint8_t>(0xd9 + log_bytes));
    BigEndian(text.size(), 1 << log_bytes);
  }
  out_ += text;
}

void MsgpackWriter::Head(size_t size, uint8_t small, uint8_t large) {
  if (size < 16) return Byte(static_cast<uint8_t>(small | size));
  const bool is_wide = size > 0xffff;
  Byte(static_cast<uint8_t>(large + (is_wide ? 1 : 0)));
  BigEndian(size, is_wide ? 4 : 2);
}

}  // namespace sluice
