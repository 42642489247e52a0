// The MPI plugin (mpi/mpi_table.h), opened at run time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/mpi/mpi_table.h"

namespace sluice {

// Possible paths of a file that belongs to MPI: beside the program, in ../lib/sluice and in ../lib.
std::vector<std::filesystem::path> MpiPlaces(const char* file);

// Opens the plugin: the file named by SLUICE_MPI_PLUGIN, else sluice_mpi.so beside the program or
// in ../lib/sluice. kUnsupported if there is no plugin or no MPI; the message names what to
// install. The plugin stays open until the process ends.
Result<const SluiceMpiTable*> OpenMpiLibrary();

// Set if an MPI launcher (mpirun, Slurm with PMIx or PMI2) started this process as one of several,
// according to the environment variables it sets. SLURM_PROCID alone does not count: a batch script
// has it, too.
struct MpiLaunch {
  int rank = 0;
  int size = 1;          // 0: unknown
  std::string launcher;  // "mpirun", "Slurm's PMIx"
  int here = 0;          // number of processes on this machine; 0: unknown
};
std::optional<MpiLaunch> FindMpiLaunch();

// kResourceExhausted if the file system that holds Open MPI's shared memory has too little room for
// `ranks_here` ranks: MPI would abort during startup.
Status CheckSharedMemory(int ranks_here);

}  // namespace sluice
