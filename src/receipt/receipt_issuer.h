// The data that a server needs to sign receipts.
#pragma once

#include <memory>
#include <string>

#include "receipt/receipt.h"

namespace sluice {

// Thread safety: immutable. Each answer is signed on the thread that writes it, which takes 50 µs.
struct ReceiptIssuer {
  SigningKey key;
  bool with_tokens = false;
  std::string program;
  std::string weights;
  json::Value profile;
};

}  // namespace sluice
