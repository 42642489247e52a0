// Implements RCCL's functions by the exchanges between emulated devices.
#include "parallel/emulated_nccl.h"
#include "stream.h"

#define RCCL extern "C" __attribute__((visibility("default")))

namespace {

using sluice::EmulatedNccl;
using sluice::nccl::Comm;

void* QueueOf(void* stream) {
  return &static_cast<fake_hip::Stream*>(stream)->queue;
}

}  // namespace

RCCL int ncclGetVersion(int* version) {
  return EmulatedNccl().get_version(version);
}
RCCL int ncclGetUniqueId(sluice::nccl::UniqueId* id) {
  return EmulatedNccl().get_unique_id(id);
}
RCCL int ncclCommInitRankConfig(Comm* comm, int size, sluice::nccl::UniqueId id, int rank,
                                sluice::nccl::Config* config) {
  return EmulatedNccl().init_rank(comm, size, id, rank, config);
}
RCCL int ncclCommAbort(Comm comm) {
  return EmulatedNccl().abort(comm);
}
RCCL int ncclCommGetAsyncError(Comm comm, int* error) {
  return EmulatedNccl().get_async_error(comm, error);
}
RCCL const char* ncclGetErrorString(int result) {
  return EmulatedNccl().error_string(result);
}
RCCL const char* ncclGetLastError(Comm comm) {
  return EmulatedNccl().last_error(comm);
}
RCCL int ncclGroupStart() {
  return EmulatedNccl().group_start();
}
RCCL int ncclGroupEnd() {
  return EmulatedNccl().group_end();
}
RCCL int ncclAllGather(const void* from, void* to, size_t count, int type, Comm comm,
                       void* stream) {
  return EmulatedNccl().all_gather(from, to, count, type, comm, QueueOf(stream));
}
RCCL int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                       void* stream) {
  return EmulatedNccl().broadcast(from, to, count, type, root, comm, QueueOf(stream));
}
RCCL int ncclSend(const void* from, size_t count, int type, int peer, Comm comm, void* stream) {
  return EmulatedNccl().send(from, count, type, peer, comm, QueueOf(stream));
}
RCCL int ncclRecv(void* to, size_t count, int type, int peer, Comm comm, void* stream) {
  return EmulatedNccl().receive(to, count, type, peer, comm, QueueOf(stream));
}
