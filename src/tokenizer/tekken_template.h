// Chat templates for the versions of tekken.json, whose models are published without one.
#pragma once

#include <string>

namespace sluice {

// A template that renders what mistral-common's renderer of this version ("v3", "v7", "v11", "v13",
// "v15") does with text and tools; "" for another version. Differences, since a template cannot
// parse JSON: contents of tools stay strings in v3. `default_effort`: the reasoning effort if the
// request does not set one, or "" (only v15).
std::string TekkenTemplate(const std::string& version, const std::string& default_effort);

}  // namespace sluice
