// Implements --record and --receipts of `sluice serve`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/configs.h"
#include "cli/serving.h"
#include "options/settings.h"
#include "receipt/receipt_issuer.h"
#include "recording/flight_recorder.h"

namespace sluice::cli {

// Starts the recorder and loads the key, if the options request that. Call before the server loads
// its model.
Status UseRecordingOptions(const options::Settings& settings, const ModelArgument& model,
                           Serving& serving);
// Makes the checks of UseRecordingOptions without starting anything.
Status CheckRecordingOptions(const options::Settings& settings);
// Starts a recorder that writes one model's recording into `folder`, with the settings in the
// options. REQUIRES: --record is given.
Result<std::unique_ptr<recording::FlightRecorder>> StartRecorder(
    const options::Settings& settings, const ModelArgument& model,
    const std::filesystem::path& folder);
// Returns the folder of a model's recordings, inside the folder of --record, for a server with
// several models.
std::filesystem::path RecordingFolder(const options::Settings& settings, std::string_view model);
// Returns the issuer of a model's receipts; null without --receipts. `digest`: the digest of its
// weights.
Result<std::shared_ptr<const ReceiptIssuer>> ReceiptIssuerOf(const options::Settings& settings,
                                                             const std::string& digest,
                                                             const EngineInfo& info);

// Returns the options that determine what the engine computes, as command-line arguments. No other
// option is recorded, because it may contain keys.
std::vector<std::string> EngineWords(const options::Settings& settings);

}  // namespace sluice::cli
