// Loaded before the C library (LD_PRELOAD), makes calls fail. Of the function FAULT_CALL ("new": an
// allocation by the program; "system": all functions below except that), call number FAULT_NTH
// (from 1) fails, or with FAULT_SEED a share of FAULT_PER_MILLE of all calls, with the error
// FAULT_ERRNO. FAULT_SHORT=1: reads and writes of several bytes transfer one byte instead.
// FAULT_KILL=1: the process is killed. FAULT_CLOCK: seconds by which the wall clock jumps back and
// forth. FAULT_SWITCH names a file with the layout of Switch, which a test changes while the
// process runs.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_memalign(size_t alignment, size_t size);

namespace {

struct Switch {
  char mode;  // '0': nothing fails
  char unused[7];
  std::atomic<uint64_t> count;  // of the calls so far
  std::atomic<uint64_t> nth;    // replaces FAULT_NTH if it is not 0
  char thread[16];              // if it is not empty: only calls of threads of this name count
  char call[16];                // replaces FAULT_CALL if it is not empty
};
static_assert(sizeof(Switch) == 56);

struct State {
  const char* call = "";
  uint64_t nth = 0, seed = 0, per_mille = 0;
  int error = EIO;
  bool is_short = false;
  bool kills = false;
  long clock_seconds = 0;
  Switch own = {};  // where no file is named
  Switch* shared = &own;
  const char* program_begin = nullptr;
  const char* program_end = nullptr;
  bool ready = false;
};

State state;

uint64_t Number(const char* name) {
  const char* text = getenv(name);
  return text == nullptr ? 0 : strtoull(text, nullptr, 10);
}

// The first object is the program.
int FindProgram(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    state.program_begin = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    state.program_end = state.program_begin + part.p_memsz;
  }
  return 1;
}

__attribute__((constructor)) void Prepare() {
  dl_iterate_phdr(FindProgram, nullptr);
  if (const char* call = getenv("FAULT_CALL")) state.call = call;
  state.nth = Number("FAULT_NTH");
  state.seed = Number("FAULT_SEED");
  state.per_mille = Number("FAULT_PER_MILLE");
  if (getenv("FAULT_ERRNO")) state.error = static_cast<int>(Number("FAULT_ERRNO"));
  state.is_short = Number("FAULT_SHORT") != 0;
  state.kills = Number("FAULT_KILL") != 0;
  state.clock_seconds = static_cast<long>(Number("FAULT_CLOCK"));
  if (const char* path = getenv("FAULT_SWITCH")) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    void* place = mmap(nullptr, sizeof(Switch), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (place != MAP_FAILED) state.shared = static_cast<Switch*>(place);
  }
  state.ready = true;
}

// Whether the code at this address belongs to the program and not to a library.
bool IsOfTheProgram(const void* code) {
  const char* place = static_cast<const char*>(code);
  return state.ready && place >= state.program_begin && place < state.program_end;
}

// Whether this call must fail.
bool Fails(const char* call) {
  Switch& shared = *state.shared;
  if (!state.ready || shared.mode == '0') return false;
  const char* const wanted = shared.call[0] != 0 ? shared.call : state.call;
  const bool is_any = strcmp(wanted, "system") == 0 && strcmp(call, "new") != 0;
  if (!is_any && strcmp(call, wanted) != 0) return false;
  if (shared.thread[0] != 0) {
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    if (strcmp(name, shared.thread) != 0) return false;
  }
  const uint64_t number = ++shared.count;
  const uint64_t nth = shared.nth != 0 ? shared.nth.load() : state.nth;
  if (state.kills && number == nth) kill(getpid(), SIGKILL);
  if (nth != 0) return number == nth;
  // splitmix64: the seed determines which numbers fail.
  uint64_t x = state.seed + number * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) % 1000 < state.per_mille;
}

// Whether an allocation by the program must fail. If it does, its repetition also fails: the
// program frees a reserve (base/process_memory.h) and tries again, and no exception would be
// thrown.
bool IsRefused(size_t size) {
  static __thread size_t refused_size = 0;
  const bool is_repeated = refused_size != 0 && refused_size == size;
  refused_size = 0;
  if (!is_repeated && !Fails("new")) return false;
  if (!is_repeated) refused_size = size;
  errno = ENOMEM;
  return true;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// Functions are looked up only once.
#define NEXT(name) static auto* next = Next<decltype(name)>(#name)
#define FAIL_WITH(name, value) \
  NEXT(name);                  \
  if (Fails(#name)) {          \
    errno = state.error;       \
    return value;              \
  }

extern "C" {

ssize_t read(int file, void* data, size_t size) {
  NEXT(read);
  if (Fails("read")) {
    if (state.is_short) return next(file, data, size > 1 ? 1 : size);
    errno = state.error;
    return -1;
  }
  return next(file, data, size);
}

ssize_t recv(int socket, void* data, size_t size, int flags) {
  NEXT(recv);
  if (Fails("recv")) {
    if (state.is_short) return next(socket, data, size > 1 ? 1 : size, flags);
    errno = state.error;
    return -1;
  }
  return next(socket, data, size, flags);
}

ssize_t send(int socket, const void* data, size_t size, int flags) {
  NEXT(send);
  if (Fails("send")) {
    if (state.is_short) return next(socket, data, size > 1 ? 1 : size, flags);
    errno = state.error;
    return -1;
  }
  return next(socket, data, size, flags);
}

int open(const char* path, int flags, ...) {
  va_list words;
  va_start(words, flags);
  const mode_t mode = va_arg(words, mode_t);
  va_end(words);
  FAIL_WITH(open, -1)
  return next(path, flags, mode);
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  FAIL_WITH(mmap, MAP_FAILED)
  return next(address, size, protection, flags, file, offset);
}

// Functions that report a failure by -1. SAFE: they are noexcept in the C library's headers.
#define FAILING(type, name, parameters, arguments) \
  type name parameters {                           \
    FAIL_WITH(name, -1)                            \
    return next arguments;                         \
  }
#define FAILING_SAFE(type, name, parameters, arguments) \
  type name parameters noexcept {                       \
    FAIL_WITH(name, -1)                                 \
    return next arguments;                              \
  }

FAILING_SAFE(int, fstat, (int file, struct stat* out), (file, out))
FAILING_SAFE(int, stat, (const char* path, struct stat* out), (path, out))
FAILING_SAFE(int, lstat, (const char* path, struct stat* out), (path, out))
FAILING(int, fsync, (int file), (file))
FAILING(int, fdatasync, (int file), (file))
FAILING_SAFE(int, ftruncate, (int file, off_t size), (file, size))
FAILING_SAFE(int, rename, (const char* from, const char* to), (from, to))
FAILING_SAFE(int, unlink, (const char* path), (path))
FAILING_SAFE(int, mkdir, (const char* path, mode_t mode), (path, mode))
FAILING(ssize_t, pread, (int file, void* data, size_t size, off_t at), (file, data, size, at))
FAILING(ssize_t, pwrite, (int file, const void* data, size_t size, off_t at),
        (file, data, size, at))
FAILING(ssize_t, write, (int file, const void* data, size_t size), (file, data, size))
FAILING(ssize_t, readv, (int file, const iovec* parts, int count), (file, parts, count))
FAILING(ssize_t, writev, (int file, const iovec* parts, int count), (file, parts, count))
FAILING_SAFE(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
FAILING(int, connect, (int socket, const sockaddr* to, socklen_t size), (socket, to, size))
FAILING(ssize_t, sendmsg, (int socket, const msghdr* message, int flags), (socket, message, flags))
FAILING(ssize_t, recvmsg, (int socket, msghdr* message, int flags), (socket, message, flags))
FAILING_SAFE(int, epoll_ctl, (int file, int operation, int of, epoll_event* event),
             (file, operation, of, event))
FAILING(int, accept, (int socket, sockaddr* address, socklen_t* size), (socket, address, size))
FAILING(int, accept4, (int socket, sockaddr* address, socklen_t* size, int flags),
        (socket, address, size, flags))
FAILING(int, epoll_wait, (int file, epoll_event* events, int most, int timeout),
        (file, events, most, timeout))
FAILING(int, poll, (pollfd * files, nfds_t count, int timeout), (files, count, timeout))
FAILING_SAFE(int, eventfd, (unsigned value, int flags), (value, flags))
FAILING(int, eventfd_read, (int file, eventfd_t* value), (file, value))
FAILING(int, eventfd_write, (int file, eventfd_t value), (file, value))

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  NEXT(pthread_create);
  if (Fails("pthread_create")) return state.error;
  return next(thread, attributes, run, argument);
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  NEXT(clock_gettime);
  const int result = next(clock, out);
  if (state.clock_seconds != 0 && clock == CLOCK_REALTIME && state.shared->mode != '0') {
    // A day forward or back, in an irregular order, so that a fixed number of calls does not always
    // lead to the same day.
    const bool is_forth = (++state.shared->count * 0x9E3779B97F4A7C15u) >> 63 != 0;
    out->tv_sec += is_forth ? state.clock_seconds : -state.clock_seconds;
  }
  return result;
}

// Only the program's own allocations in C++ fail: libraries in C that do not check malloc's result
// would end the process, which no handling here could prevent.
void* malloc(size_t size) noexcept {
  if (IsOfTheProgram(__builtin_return_address(0)) && IsRefused(size)) return nullptr;
  return __libc_malloc(size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  if (IsOfTheProgram(__builtin_return_address(0)) && IsRefused(size)) return nullptr;
  return __libc_memalign(alignment, size);
}

}  // extern "C"
