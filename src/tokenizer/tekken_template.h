// Chat templates for the versions of tekken.json, whose models are published without one.
#pragma once

#include <string>

namespace sluice {

// Returns a template that renders text and tools like mistral-common's renderer of `version` ("v3",
// "v7", "v11", "v13" or "v15"); "" for other versions. One difference: in v3, the contents of tool
// messages stay strings, because a template cannot parse JSON. `default_effort`: the reasoning
// effort if the request does not set one, or "" (only v15).
std::string TekkenTemplate(const std::string& version, const std::string& default_effort);

}  // namespace sluice
