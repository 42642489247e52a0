// What a server signs receipts with.
#pragma once

#include <memory>
#include <string>

#include "receipt/receipt.h"

namespace sluice {

// Thread safety: immutable. Answers are signed on the thread that writes them, 50 µs each.
struct ReceiptIssuer {
  SigningKey key;
  bool with_tokens = false;
  std::string program;
  std::string weights;
  json::Value profile;
};

}  // namespace sluice
