// The functions of a GPU vendor's runtime as a table: CUDA's, linked into the program, or HIP's,
// opened at run time. Each call of HIP has the same meaning as CUDA's, so one device class
// (gpu_device.h) serves both. Errors are the runtime's own numbers; the following ones are equal in
// both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace sluice {

constexpr int kGpuSuccess = 0;
constexpr int kGpuOutOfMemory = 2;
constexpr int kGpuNotReady = 600;

// Thread safety: as documented for the runtime's functions. Handles (streams, events, graphs) are
// the runtime's own.
struct GpuRuntime {
  const char* name;  // "CUDA", in messages

  // Returns and clears the thread's last error.
  int (*take_last_error)();
  int (*set_device)(int ordinal);
  int (*memory_info)(size_t* free, size_t* total);
  int (*allocate)(void** data, size_t bytes);
  int (*free)(void* data);
  int (*can_address)(int* can, int ordinal, int other);
  // Lets the thread's current device address the memory of `other`. Succeeds if it already can.
  int (*let_address)(int other);
  int (*allocate_host)(void** data, size_t bytes);  // page-locked for all devices
  int (*free_host)(void* data);
  int (*lock_host)(void* data, size_t bytes);  // page-locks for all devices
  int (*unlock_host)(void* data);

  int (*create_stream)(void** stream);  // does not wait for the default stream
  int (*destroy_stream)(void* stream);
  int (*wait_for_stream)(void* stream);
  int (*query_stream)(void* stream);  // kGpuNotReady: work is pending
  int (*have_stream_wait)(void* stream, void* event);
  int (*copy_to_device)(void* to, const void* from, size_t bytes, void* stream);
  int (*copy_to_host)(void* to, const void* from, size_t bytes, void* stream);
  int (*copy_on_device)(void* to, const void* from, size_t bytes, void* stream);
  int (*fill)(void* to, int byte, size_t bytes, void* stream);

  int (*begin_capture)(void* stream);  // does not restrict other threads' calls
  int (*end_capture)(void* stream, void** recorded);
  int (*count_operations)(void* recorded, size_t* count);
  int (*destroy_recorded)(void* recorded);
  int (*instantiate)(void** graph, void* recorded);
  int (*upload)(void* graph, void* stream);
  int (*launch_graph)(void* graph, void* stream);
  int (*destroy_graph)(void* graph);

  int (*create_event)(void** event);
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*wait_for_event)(void* event);
  int (*milliseconds_between)(float* milliseconds, void* begin, void* end);

  // Whether the device is unusable for this process after this error.
  bool (*is_fatal)(int code);
  // kInternal: "copying 12 bytes to the device: cudaErrorInvalidValue (invalid argument)", with
  // advice if there is any.
  Error (*failure)(const std::string& purpose, int code);
  // Name and value of the environment variable that makes every launch wait for its kernel.
  const char* blocking_variable;
  const char* blocking_value;
};

}  // namespace sluice
