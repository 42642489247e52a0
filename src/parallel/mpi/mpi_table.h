// The interface of the MPI plugin: a table of functions that use only C types. The program itself
// does not link to MPI and starts without it; the plugin, compiled with the machine's mpi.h, is
// opened when ranks are processes (mpi_library.h). Implementations of MPI differ in the types and
// constants of mpi.h, so a plugin works only with the implementation it was compiled with.
//
// Functions return 0, or a code for error_text. Only init and finalize wait for other ranks. Thread
// safety: one thread at a time.
#pragma once

#include <cstdint>

// Increment with every change of the table.
#define SLUICE_MPI_ABI 1
#define SLUICE_MPI_TABLE "sluice_mpi_table"

extern "C" {

struct SluiceMpiTable {
  uint32_t abi;
  // For example "Open MPI v4.1.4 ...". Valid after init.
  const char* (*library_version)();
  int (*init)(int* rank, int* size);
  // Non-blocking. `request` identifies the transfer until `test` reports that it is done. `bytes`
  // is below 2^31.
  int (*send)(const void* data, int64_t bytes, int peer, int tag, int* request);
  int (*receive)(void* data, int64_t bytes, int peer, int tag, int* request);
  // Advances transfers. `bytes`: receives the number of received bytes, if a receive is done.
  int (*test)(int request, int* is_done, int64_t* bytes);
  int (*finalize)();
  const char* (*error_text)(int code);
};

}  // extern "C"
