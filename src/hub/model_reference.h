// Names that users give for a model of the hub: its id, or the URL of its page.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Whether `text` has the form of a model id: "org/name" or "name", as in huggingface_hub.
bool IsHubId(std::string_view text);

// Whether `text` is a commit's hash: 40 hexadecimal digits, in lower case.
bool IsCommit(std::string_view text);

// Whether `text` is a valid name of a branch, tag or commit; a valid name cannot lead outside a
// folder.
bool IsRevisionName(std::string_view text);

struct ModelReference {
  std::string id;
  std::string revision = "";  // "" if not given
};

// Parses "https://huggingface.co/ORG/NAME", also with "/tree/REVISION" or "/blob/REVISION/file",
// "hf.co/ORG/NAME", "hf://ORG/NAME", and the same at `endpoint`. Ignores ? or # and what follows.
// nullopt for other text.
std::optional<ModelReference> ParseModelAddress(std::string_view text, std::string_view endpoint);

}  // namespace sluice
