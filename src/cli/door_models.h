// The models of --models: from entries of its file to models behind a door.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "options/models_file.h"
#include "options/settings.h"
#include "server/door/door_model.h"

namespace sluice::cli {

// The settings of an entry: those of the command line, and the entry's own over them.
// kInvalidArgument, with the entry's place, for options that are the server's and not a model's,
// for those that do not go with several models, and for what CheckSettings refuses.
Result<options::Settings> SettingsOfEntry(const options::Settings& settings,
                                          const options::ModelEntry& entry);

// What all entries divide.
struct DoorMemory {
  int64_t budget_bytes = 0;   // of the models
  int64_t request_bytes = 0;  // of requests, besides what each model adds
};
// --models-memory, or nine tenths of what is free. kInvalidArgument for more than the machine has.
Result<DoorMemory> DoorMemoryOf(const options::Settings& settings);

// All of them. Errors of SettingsOfEntry; kInvalidArgument for a path that is neither a folder nor
// a model id, and for an adapter with the name of another model or adapter.
Result<std::vector<DoorModel>> DoorModelsOf(const options::Settings& settings,
                                            const std::vector<options::ModelEntry>& entries,
                                            const DoorMemory& memory);

// Whether each could be loaded, as far as that is known without its weights; prints what each
// takes.
Status CheckDoorModels(const options::Settings& settings,
                       const std::vector<options::ModelEntry>& entries, const DoorMemory& memory);

}  // namespace sluice::cli
