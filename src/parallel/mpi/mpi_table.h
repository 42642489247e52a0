// What the MPI plugin offers the program: a table of functions with C types alone. The program has
// no MPI in it and starts where there is none; the plugin, compiled with the machine's mpi.h, is
// opened when ranks are processes (mpi_library.h). Implementations of MPI differ in the types and
// constants of mpi.h, so a plugin serves the one it was compiled with.
//
// Functions return 0, or a code for error_text. None of them waits for another rank, but init and
// finalize. Thread safety: one thread at a time.
#pragma once

#include <cstdint>

// Changes with every change of the table.
#define SLUICE_MPI_ABI 1
#define SLUICE_MPI_TABLE "sluice_mpi_table"

extern "C" {

struct SluiceMpiTable {
  uint32_t abi;
  // "Open MPI v4.1.4 ...", valid once init has returned.
  const char* (*library_version)();
  int (*init)(int* rank, int* size);
  // Both begin and return. `request` names the transfer until `test` says that it is done.
  // `bytes` is below 2^31.
  int (*send)(const void* data, int64_t bytes, int peer, int tag, int* request);
  int (*receive)(void* data, int64_t bytes, int peer, int tag, int* request);
  // Lets transfers go on. `bytes`: that arrived, of a receive that is done.
  int (*test)(int request, int* is_done, int64_t* bytes);
  int (*finalize)();
  const char* (*error_text)(int code);
};

}  // extern "C"
