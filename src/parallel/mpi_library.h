// The MPI plugin (mpi/mpi_table.h), opened at run time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/mpi/mpi_table.h"

namespace sluice {

// Where a file that belongs to MPI may be: beside the program, in ../lib/sluice or in ../lib.
std::vector<std::filesystem::path> MpiPlaces(const char* file);

// Opens the plugin: the file that SLUICE_MPI_PLUGIN names, else sluice_mpi.so beside the program or
// in ../lib/sluice. kUnsupported where there is none, or where MPI itself is missing: the message
// says what to install. The plugin stays open until the process ends.
Result<const SluiceMpiTable*> OpenMpiLibrary();

// Whether a launcher of MPI (mpirun, Slurm with PMIx or PMI2) started this process as one of
// several, by the variables that it sets; and which one. SLURM_PROCID alone does not count: a batch
// script has it, too.
struct MpiLaunch {
  int rank = 0;
  int size = 1;          // 0: the launcher does not say
  std::string launcher;  // "mpirun", "Slurm's PMIx"
  int here = 0;          // of the processes, those on this machine; 0: the launcher does not say
};
std::optional<MpiLaunch> FindMpiLaunch();

// kResourceExhausted where the file system through which Open MPI's ranks on a machine exchange has
// too little room for `ranks_here` of them: MPI would end in the middle of the start.
Status CheckSharedMemory(int ranks_here);

}  // namespace sluice
