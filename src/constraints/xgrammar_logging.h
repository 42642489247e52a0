// Replaces xgrammar's support/logging.h, whose include guard it defines. It is included before
// every source of xgrammar (cmake/Xgrammar.cmake). Errors are thrown without source location and
// time, which are useless to a client. Warnings, which would go to stderr, are dropped:
// json_schema.h already finds what the engine would ignore. The destructors here do not allocate,
// so that a refused allocation (work_budget.h) never throws out of a destructor. XGRAMMAR_DCHECK,
// which every access to a grammar or an automaton calls, checks the stack instead.
#ifndef XGRAMMAR_SUPPORT_LOGGING_H_
#define XGRAMMAR_SUPPORT_LOGGING_H_

#include <ctime>
#include <exception>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/work_budget.h"

namespace xgrammar {

class LogFatalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Collects an error message. The destructor, which runs at the end of the logging statement, throws
// the message, unless another exception is already leaving that statement.
class LogFatal {
 public:
  ~LogFatal() noexcept(false) {
    if (std::uncaught_exceptions() == exceptions_) throw LogFatalError(stream_.str());
  }
  std::ostringstream& stream() { return stream_; }

 private:
  const int exceptions_ = std::uncaught_exceptions();
  std::ostringstream stream_;
};

struct NoLog {
  template <typename T>
  const NoLog& operator<<(const T&) const {
    return *this;
  }
  const NoLog& operator<<(std::ostream& (*)(std::ostream&)) const { return *this; }
};

}  // namespace xgrammar

#define XGRAMMAR_LOG_INFO ::xgrammar::NoLog()
#define XGRAMMAR_LOG_DEBUG ::xgrammar::NoLog()
#define XGRAMMAR_LOG_WARNING ::xgrammar::NoLog()
#define XGRAMMAR_LOG_FATAL ::xgrammar::LogFatal().stream()
#define XGRAMMAR_LOG(level) XGRAMMAR_LOG_##level
#define XGRAMMAR_CHECK(x) \
  if (!(x)) ::xgrammar::LogFatal().stream()
#define XGRAMMAR_ICHECK(x) \
  if (!(x)) ::xgrammar::LogFatal().stream() << "xgrammar: (" #x << ") is false: "
#define XGRAMMAR_DCHECK(x) \
  for (::sluice::CheckStack(); false;) XGRAMMAR_ICHECK(x)

#endif  // XGRAMMAR_SUPPORT_LOGGING_H_
