// CHECK(condition, "format", args...): prints the message and aborts if `condition` is false. For
// invariants of the program itself, never for input.
#pragma once

#include <fmt/format.h>

namespace sluice {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace sluice

#define CHECK(condition, ...)                                                             \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::sluice::CheckFailed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
#define CHECK_EQ(a, b) CHECK((a) == (b), "{} vs {}", (a), (b))
#define CHECK_LE(a, b) CHECK((a) <= (b), "{} vs {}", (a), (b))
#define CHECK_LT(a, b) CHECK((a) < (b), "{} vs {}", (a), (b))
#define CHECK_GE(a, b) CHECK((a) >= (b), "{} vs {}", (a), (b))
#define CHECK_GT(a, b) CHECK((a) > (b), "{} vs {}", (a), (b))
