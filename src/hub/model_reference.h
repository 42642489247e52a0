// How people name a model of the hub: an id, or the address of its page.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Whether `text` has the form of a model id: "org/name" or "name", as huggingface_hub allows them.
bool IsHubId(std::string_view text);

// Whether `text` is a commit's hash: 40 hexadecimal digits, in lower case.
bool IsCommit(std::string_view text);

// Whether `text` may name a branch, a tag or a commit; such a name never leads out of a folder.
bool IsRevisionName(std::string_view text);

struct ModelReference {
  std::string id;
  std::string revision = "";  // "" where none is named
};

// Reads "https://huggingface.co/ORG/NAME", also with "/tree/REVISION" or "/blob/REVISION/file",
// "hf.co/ORG/NAME", "hf://ORG/NAME" and the same at `endpoint`; what follows ? or # is left out.
// None for anything else.
std::optional<ModelReference> ParseModelAddress(std::string_view text, std::string_view endpoint);

}  // namespace sluice
