// Opens the MPI plugin (mpi/mpi_table.h) at run time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/mpi/mpi_table.h"

namespace sluice {

// Returns possible paths of a file that belongs to MPI: in the program's folder, in ../lib/sluice
// and in ../lib.
std::vector<std::filesystem::path> MpiPlaces(const char* file);

// Opens the plugin: the file named by SLUICE_MPI_PLUGIN, else sluice_mpi.so in the program's folder
// or in ../lib/sluice. kUnsupported if there is no plugin or no MPI; the message names what to
// install. The plugin stays open until the process ends.
Result<const SluiceMpiTable*> OpenMpiLibrary();

// How an MPI launcher (mpirun, Slurm with PMIx or PMI2) started this process. FindMpiLaunch judges
// by the environment variables that launchers set. It returns nullopt unless a launcher started
// this process as one of several. SLURM_PROCID alone does not count, because batch scripts also
// have it.
struct MpiLaunch {
  int rank = 0;
  int size = 1;          // 0: unknown
  std::string launcher;  // "mpirun", "Slurm's PMIx"
  int here = 0;          // number of processes on this machine; 0: unknown
};
std::optional<MpiLaunch> FindMpiLaunch();

// Returns kResourceExhausted if the file system for Open MPI's shared memory has too little room
// for `ranks_here` ranks, because MPI would abort during startup.
Status CheckSharedMemory(int ranks_here);

}  // namespace sluice
