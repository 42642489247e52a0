// Converts the entries of the --models file to models to serve.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "options/models_file.h"
#include "options/settings.h"
#include "server/door/door_model.h"

namespace sluice::cli {

// Returns the settings of an entry: the command line's settings, overridden by the entry's own.
// kInvalidArgument, with the entry's position in the file, for: an option that applies to the whole
// server; an option that is refused with several models; settings that CheckSettings refuses.
Result<options::Settings> SettingsOfEntry(const options::Settings& settings,
                                          const options::ModelEntry& entry);

// Memory that all entries share.
struct DoorMemory {
  int64_t budget_bytes = 0;   // for the models
  int64_t request_bytes = 0;  // for requests, in addition to each model's own
};
// Divides --models-memory (default: 9/10 of the free memory) between models and requests.
// kInvalidArgument if it exceeds the machine's memory, or if --request-memory-bytes takes all of
// it.
Result<DoorMemory> DoorMemoryOf(const options::Settings& settings);

// Returns the models of all entries. Errors: the same as for SettingsOfEntry. kInvalidArgument for:
// an option that cannot be combined with --models; a path that is not a folder or a model id; an
// adapter with the name of another model or adapter; a model on a device without --models-memory.
Result<std::vector<DoorModel>> DoorModelsOf(const options::Settings& settings,
                                            const std::vector<options::ModelEntry>& entries,
                                            const DoorMemory& memory);

// Checks whether each model could be loaded, without reading its weights. Prints the memory that
// each model takes.
Status CheckDoorModels(const options::Settings& settings,
                       const std::vector<options::ModelEntry>& entries, const DoorMemory& memory);

}  // namespace sluice::cli
