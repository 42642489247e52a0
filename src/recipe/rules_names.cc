// Checks that requests address launched servers: model names and ports.
#include <algorithm>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "recipe/findings.h"

namespace sluice {
namespace {

std::string Bare(std::string name) {
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

std::string_view KindName(RequestKind kind) {
  switch (kind) {
    case RequestKind::kCurl: return "curl";
    case RequestKind::kLmEval: return "lm_eval";
    case RequestKind::kBench: return "the bench";
    case RequestKind::kPython: return "the Python example";
  }
  return "";
}

// Returns the model names that a launched server accepts.
std::vector<std::string> NamesServed(const LaunchFacts& launch) {
  if (launch.settings) {
    if (auto names = launch.settings->List("served-model-name"); !names.empty()) return names;
  }
  return {launch.model};
}

bool Serves(const LaunchFacts& launch, const std::string& model) {
  const auto names = NamesServed(launch);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return Bare(name) == Bare(model); });
}

// Returns the conditions under which a launch runs, as text for a message.
std::string When(const RecipeLaunch& launch) {
  return launch.conditions.empty() ? "" : fmt::format("{}", fmt::join(launch.conditions, " and "));
}

void CheckRequest(const RecipeRequest& request, const std::vector<LaunchFacts>& launches,
                  std::vector<Finding>& findings) {
  // Skips unset or unknown variables, because they are not names.
  if (request.model.empty() || request.model.starts_with('-') ||
      request.model.find('$') != std::string::npos)
    return;
  std::vector<std::string> served;
  std::vector<const LaunchFacts*> others;
  size_t matches = 0;
  for (const LaunchFacts& launch : launches) {
    if (launch.model.empty()) continue;
    if (Serves(launch, request.model)) {
      ++matches;
      continue;
    }
    others.push_back(&launch);
    for (const std::string& name : NamesServed(launch)) {
      if (std::find(served.begin(), served.end(), name) == served.end()) served.push_back(name);
    }
  }
  if (others.empty()) return;
  if (matches == 0) {
    findings.push_back(
        {Severity::kError, request.line, "model-name",
         fmt::format("{} asks for {}, and no launch serves that: it is {}. The answer is 404; ask "
                     "for the launched name, or launch with --served-model-name {}",
                     KindName(request.kind), request.model, fmt::join(served, " or "),
                     request.model)});
    return;
  }
  // Consecutive launches are alternatives for the reader; launches of different `if` branches are
  // not.
  for (const LaunchFacts* other : others) {
    const std::string when = When(other->launch);
    if (when.empty()) continue;
    findings.push_back(
        {Severity::kWarning, request.line, "model-name",
         fmt::format("{} asks for {}, but where {} the launch serves {}: there the answer is 404",
                     KindName(request.kind), request.model, when,
                     fmt::join(NamesServed(*other), " or "))});
  }
}

// Returns the model ids that the recipe links to, presumably for download.
std::vector<std::string> LinkedIds(const RecipeDocument& document) {
  static const std::regex kLink(
      R"(huggingface\.co/([A-Za-z0-9_.-]{1,96}/[A-Za-z0-9_.-]{1,96})(?=[)\]\s/]|$))");
  static const std::set<std::string> kPages = {"docs", "blog", "spaces", "datasets", "papers"};
  std::vector<std::string> ids;
  for (const ProseLine& line : document.prose) {
    for (std::sregex_iterator it(line.text.begin(), line.text.end(), kLink), end; it != end; ++it) {
      const std::string id = (*it)[1];
      if (!kPages.contains(id.substr(0, id.find('/')))) ids.push_back(id);
    }
  }
  return ids;
}

void CheckLinks(const RecipeFacts& facts, std::vector<Finding>& findings) {
  const std::vector<std::string> ids = LinkedIds(facts.document);
  if (ids.empty()) return;
  for (const LaunchFacts& launch : facts.launches) {
    if (launch.model.empty() || launch.model.find('/') == std::string::npos ||
        launch.model.starts_with('/') ||
        std::find(ids.begin(), ids.end(), launch.model) != ids.end())
      continue;
    // Finds the linked id whose common prefix and suffix with the launched name are longest in
    // total.
    const auto shared = [&](const std::string& id) {
      const auto front =
          std::mismatch(id.begin(), id.end(), launch.model.begin(), launch.model.end());
      const auto back =
          std::mismatch(id.rbegin(), id.rend(), launch.model.rbegin(), launch.model.rend());
      return (front.first - id.begin()) + (back.first - id.rbegin());
    };
    const auto nearest = std::max_element(
        ids.begin(), ids.end(),
        [&](const std::string& a, const std::string& b) { return shared(a) < shared(b); });
    findings.push_back(
        {Severity::kError, launch.launch.line, "unlinked-model",
         fmt::format("the launch loads {}, which is none of the models that the recipe links to "
                     "({}); is {} meant?",
                     launch.model, fmt::join(ids, ", "), *nearest)});
  }
}

int PortOf(const LaunchFacts& launch) {
  return static_cast<int>(launch.settings ? launch.settings->Integer("port").value_or(8000) : 0);
}

void CheckPort(const RecipeRequest& request, const std::vector<LaunchFacts>& launches,
               std::vector<Finding>& findings) {
  constexpr int kDefaultPort = 8000;  // default of benchmark tools
  const int asked = request.port != 0                     ? request.port
                    : request.kind == RequestKind::kBench ? kDefaultPort
                                                          : 0;
  if (asked == 0 || launches.empty()) return;
  std::set<int> ports;
  for (const LaunchFacts& launch : launches) {
    const int port = PortOf(launch);
    // The server is reachable at this port, or the port is unknown.
    if (port == 0 || port == asked) return;
    ports.insert(port);
  }
  findings.push_back({Severity::kError, request.line, "port",
                      fmt::format("{} goes to port {}, the server listens on {}",
                                  KindName(request.kind), asked, fmt::join(ports, " or "))});
}

}  // namespace

void CheckNames(const RecipeFacts& facts, std::vector<Finding>& findings) {
  for (const RecipeRequest& request : facts.commands.requests) {
    CheckRequest(request, facts.launches, findings);
    CheckPort(request, facts.launches, findings);
  }
  CheckLinks(facts, findings);
}

}  // namespace sluice
