#include "base/stack_thread.h"

#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"

namespace sluice {
namespace {

struct StackThreadWork {
  const char* name;
  std::function<void()> run;
};

void* RunStackThread(void* work) {
  const std::unique_ptr<StackThreadWork> owned(static_cast<StackThreadWork*>(work));
  NameThread(owned->name);
  RunGuarded(owned->name, "the thread", owned->run);
  return nullptr;
}

}  // namespace

StackThread::StackThread(const char* name, size_t stack_bytes, std::function<void()> run) {
  auto owned = std::make_unique<StackThreadWork>(StackThreadWork{name, std::move(run)});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread{};
  int error = pthread_attr_setstacksize(&attributes, stack_bytes);
  if (error == 0) error = pthread_create(&thread, &attributes, RunStackThread, owned.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "a thread");
  owned.release();  // NOLINT(bugprone-unused-return-value): the thread owns it
  thread_ = thread;
}

StackThread::StackThread(StackThread&& other) noexcept
    : thread_(std::exchange(other.thread_, std::nullopt)) {}

StackThread::~StackThread() {
  CHECK(!thread_.has_value(), "a thread is destroyed before it was joined");
}

void StackThread::Join() {
  CHECK(thread_.has_value());
  CHECK_EQ(pthread_join(*thread_, nullptr), 0);
  thread_.reset();
}

}  // namespace sluice
