// The MPI plugin, the only file that includes mpi.h. mpi_table.h has its contract.
#include <mpi.h>

#include <array>
#include <cstddef>

#include "parallel/mpi/mpi_table.h"

namespace {

// Enough for a gather among the maximum number of ranks, in which each array is sent and received
// in a few pieces.
constexpr size_t kMostRequests = 4096;

std::array<MPI_Request, kMostRequests> g_requests;
std::array<int, kMostRequests> g_free;  // a stack of free indices of g_requests
size_t g_num_free = 0;
// A communicator of our own, so that messages of other libraries in the process do not reach it.
MPI_Comm g_group = MPI_COMM_NULL;

const char* LibraryVersion() {
  static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  if (text[0] == '\0') MPI_Get_library_version(text.data(), &length);
  return text.data();
}

int Init(int* rank, int* size) {
  int provided = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      code != MPI_SUCCESS) {
    return code;
  }
  if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &g_group); code != MPI_SUCCESS) return code;
  MPI_Comm_set_errhandler(g_group, MPI_ERRORS_RETURN);
  MPI_Comm_rank(g_group, rank);
  MPI_Comm_size(g_group, size);
  g_requests.fill(MPI_REQUEST_NULL);
  for (g_num_free = 0; g_num_free < kMostRequests; ++g_num_free)
    g_free[g_num_free] = static_cast<int>(g_num_free);
  return MPI_SUCCESS;
}

// Takes a free request. Returns null if all are in use.
MPI_Request* Take(int* request) {
  if (g_num_free == 0) return nullptr;
  *request = g_free[--g_num_free];
  return &g_requests[static_cast<size_t>(*request)];
}

int Send(const void* data, int64_t bytes, int peer, int tag, int* request) {
  MPI_Request* const place = Take(request);
  if (place == nullptr) return MPI_ERR_NO_MEM;
  return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, g_group, place);
}

int Receive(void* data, int64_t bytes, int peer, int tag, int* request) {
  MPI_Request* const place = Take(request);
  if (place == nullptr) return MPI_ERR_NO_MEM;
  return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, g_group, place);
}

int Test(int request, int* is_done, int64_t* bytes) {
  MPI_Status status;
  const int code = MPI_Test(&g_requests[static_cast<size_t>(request)], is_done, &status);
  if (code != MPI_SUCCESS) return code;
  if (*is_done != 0) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes = count;
    g_free[g_num_free++] = request;
  }
  return MPI_SUCCESS;
}

int Finalize() {
  return MPI_Finalize();
}

const char* ErrorText(int code) {
  static std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SluiceMpiTable sluice_mpi_table = {
    SLUICE_MPI_ABI, LibraryVersion, Init, Send, Receive, Test, Finalize, ErrorText};
