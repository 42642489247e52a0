#include "recipe/recipe_commands.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <regex>
#include <utility>

#include "base/json.h"

namespace sluice {
namespace {

std::string NameOf(const std::string& program) {
  return std::filesystem::path(program).filename();
}

std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the value of --name VALUE or --name=VALUE. - and _ are equal; the last occurrence counts.
std::optional<std::string> ValueOf(const std::vector<std::string>& words, std::string_view name) {
  std::optional<std::string> value;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    std::string flag = words[i].substr(0, equals);
    if (!flag.starts_with("--")) continue;
    std::replace(flag.begin() + 2, flag.end(), '_', '-');
    if (flag.substr(2) != name) continue;
    if (equals != std::string::npos) {
      value = words[i].substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[i + 1];
    }
  }
  return value;
}

std::optional<int64_t> IntegerOf(const std::vector<std::string>& words, std::string_view name) {
  const auto value = ValueOf(words, name);
  return value ? NumberOf(*value) : std::nullopt;
}

// Finds host and port of the first address in a text.
void FindAddress(const std::string& text, RecipeRequest& request) {
  static const std::regex kAddress(R"(https?://([A-Za-z0-9._-]{1,200})(?::(\d{1,5}))?)");
  std::smatch match;
  if (!std::regex_search(text, match, kAddress)) return;
  request.host = match[1];
  request.port = match[2].matched ? static_cast<int>(NumberOf(match[2].str()).value_or(0)) : 80;
}

// Removes leading programs that only run another program, such as `sudo`.
std::vector<std::string> WithoutRunners(std::vector<std::string> words) {
  while (!words.empty()) {
    const std::string name = NameOf(words[0]);
    if (name == "nohup" || name == "exec" || name == "sudo" || name == "time" || name == "env") {
      words.erase(words.begin());
      while (!words.empty() && name == "env" && words[0].find('=') != std::string::npos)
        words.erase(words.begin());
    } else {
      break;
    }
  }
  return words;
}

std::optional<RecipeLaunch> AsLaunch(const std::vector<std::string>& words) {
  const auto rest = [&](size_t count) {
    return std::vector<std::string>(words.begin() + static_cast<long>(count), words.end());
  };
  RecipeLaunch launch;
  const std::string name = words.empty() ? "" : NameOf(words[0]);
  if ((name == "vllm" || name == "sluice") && words.size() > 1 && words[1] == "serve") {
    launch.dialect = name == "vllm" ? options::Dialect::kVllm : options::Dialect::kSluice;
    launch.program = name + " serve";
    launch.words = rest(2);
    return launch;
  }
  if (name == "trtllm-serve" && words.size() > 1) {
    const bool named = words[1] == "serve";
    launch.dialect = options::Dialect::kTrtllm;
    launch.program = "trtllm-serve";
    launch.words = rest(named ? 2 : 1);
    return launch;
  }
  if (name.starts_with("python") && words.size() > 2 && words[1] == "-m" &&
      words[2] == "vllm.entrypoints.openai.api_server") {
    launch.program = "vllm serve";
    launch.words = rest(3);
    return launch;
  }
  return std::nullopt;
}

// Whether an option of `docker run` and `podman run` takes no value; all others take one.
bool StandsAlone(std::string_view option) {
  static constexpr std::string_view kAlone[] = {
      "--detach",    "--interactive",          "--tty",       "--rm",
      "--init",      "--privileged",           "--replace",   "--publish-all",
      "--read-only", "--no-healthcheck",       "--sig-proxy", "--oom-kill-disable",
      "--quiet",     "--disable-content-trust"};
  if (option.starts_with("--"))
    return std::find(std::begin(kAlone), std::end(kAlone), option) != std::end(kAlone);
  return option.find_first_not_of("ditPq", 1) == std::string_view::npos;
}

// Returns whether the image runs `vllm serve` with the container's arguments.
bool ServesByItself(std::string_view image) {
  return image.find("vllm-openai") != std::string_view::npos;
}

void SetVariable(std::string_view text, std::map<std::string, std::string>& environment) {
  const size_t equals = text.find('=');
  if (equals != std::string_view::npos)
    environment[std::string(text.substr(0, equals))] = text.substr(equals + 1);
}

// The program that a container runs.
struct Contained {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;
};

// Returns the program of a container (its entry point, or else the image's) and its arguments.
std::vector<std::string> ProgramOf(const std::string& image, std::vector<std::string> entry_point,
                                   const std::vector<std::string>& words) {
  if (entry_point.empty() && ServesByItself(image) && (words.empty() || words[0] != "vllm"))
    entry_point = {"vllm", "serve"};
  entry_point.insert(entry_point.end(), words.begin(), words.end());
  return entry_point;
}

// Parses `docker run [OPTION...] IMAGE [WORD...]`.
std::optional<Contained> AsContainer(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : NameOf(words[0]);
  if ((name != "docker" && name != "podman") || words.size() < 3) return std::nullopt;
  size_t i = words[1] == "container" ? 2 : 1;
  if (words[i] != "run") return std::nullopt;
  Contained contained;
  std::vector<std::string> entry_point;
  for (++i; i < words.size() && words[i].starts_with('-'); ++i) {
    const size_t equals = words[i].find('=');
    const std::string option = words[i].substr(0, equals);
    if (StandsAlone(option)) continue;
    std::string value;
    if (equals != std::string::npos)
      value = words[i].substr(equals + 1);
    else if (i + 1 < words.size())
      value = words[++i];
    if (option == "-e" || option == "--env") SetVariable(value, contained.environment);
    if (option == "--entrypoint") entry_point = {value};
  }
  if (i >= words.size()) return std::nullopt;
  contained.words = ProgramOf(words[i], entry_point,
                              {words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()});
  return contained;
}

// Returns the script of `sh -c SCRIPT`; "" for other commands.
std::string ScriptOf(const std::vector<std::string>& words) {
  const std::string shell = words.empty() ? "" : NameOf(words[0]);
  if ((shell != "sh" && shell != "bash") || words.size() < 3) return "";
  return words[1].starts_with('-') && words[1].ends_with('c') ? words[2] : "";
}

// Returns the elements of a list, or the words into which a shell would split a text.
std::vector<std::string> WordsOf(const YAML::Node& node) {
  std::vector<std::string> words;
  if (node.IsSequence()) {
    for (const YAML::Node& word : node) {
      if (word.IsScalar()) words.push_back(word.Scalar());
    }
  } else if (node.IsScalar()) {
    const ScriptRun run = RunScripts({ReadShellScript(node.Scalar(), 1)});
    if (!run.ways.empty() && !run.ways[0].commands.empty()) words = run.ways[0].commands[0].words;
  }
  return words;
}

std::string ScalarOf(const YAML::Node& node) {
  return node && node.IsScalar() ? node.Scalar() : "";
}

// Reads {NAME: VALUE}, [NAME=VALUE], or, in Kubernetes manifests, [{name: NAME, value: VALUE}].
std::map<std::string, std::string> EnvironmentOf(const YAML::Node& node) {
  std::map<std::string, std::string> environment;
  if (!node) return environment;
  if (node.IsMap()) {
    for (const auto& variable : node) {
      if (variable.first.IsScalar() && variable.second.IsScalar())
        environment[variable.first.Scalar()] = variable.second.Scalar();
    }
  } else if (node.IsSequence()) {
    for (const YAML::Node& variable : node) {
      if (variable.IsScalar()) SetVariable(variable.Scalar(), environment);
      if (variable.IsMap() && !ScalarOf(variable["name"]).empty() && variable["value"] &&
          variable["value"].IsScalar())
        environment[ScalarOf(variable["name"])] = ScalarOf(variable["value"]);
    }
  }
  return environment;
}

bool IsBench(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : NameOf(words[0]);
  if ((name == "vllm" || name == "sluice") && words.size() > 2)
    return words[1] == "bench" && words[2] == "serve";
  return name.starts_with("python") &&
         std::any_of(words.begin(), words.end(), [](const std::string& word) {
           return word.find("benchmark_serving") != std::string::npos ||
                  word.find("bench_serving") != std::string::npos;
         });
}

RecipeRequest AsBench(const std::vector<std::string>& words) {
  RecipeRequest request;
  request.kind = RequestKind::kBench;
  request.model = ValueOf(words, "model").value_or("");
  request.host = ValueOf(words, "host").value_or("");
  request.port = static_cast<int>(IntegerOf(words, "port").value_or(0));
  if (const auto url = ValueOf(words, "base-url")) FindAddress(*url, request);
  request.input_len = IntegerOf(words, "random-input-len");
  request.output_len = IntegerOf(words, "random-output-len");
  request.num_prompts = IntegerOf(words, "num-prompts");
  request.max_concurrency = IntegerOf(words, "max-concurrency");
  return request;
}

RecipeRequest AsLmEval(const std::vector<std::string>& words) {
  RecipeRequest request;
  request.kind = RequestKind::kLmEval;
  std::string arguments = ValueOf(words, "model-args").value_or("");
  while (!arguments.empty()) {
    const size_t comma = std::min(arguments.find(','), arguments.size());
    const std::string argument = arguments.substr(0, comma);
    arguments.erase(0, comma + 1);
    if (argument.starts_with("model=")) request.model = argument.substr(6);
    if (argument.starts_with("base_url=")) FindAddress(argument, request);
  }
  return request;
}

std::optional<RecipeRequest> AsCurl(const std::vector<std::string>& words) {
  RecipeRequest request;
  request.kind = RequestKind::kCurl;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].find("://") != std::string::npos) FindAddress(words[i], request);
    const bool data = words[i] == "-d" || words[i].starts_with("--data") || words[i] == "--json";
    if (!data || i + 1 >= words.size()) continue;
    if (const auto body = json::Parse(words[i + 1])) {
      if (const json::Value* model = body->Find("model"); model != nullptr && model->is_string())
        request.model = model->as_string();
    }
  }
  if (request.host.empty()) return std::nullopt;
  return request;
}

class CommandFinder {
 public:
  explicit CommandFinder(const RecipeDocument& document) : document_(document) {}

  RecipeCommands Find(const ScriptRun& run) {
    for (const RecipeBlock& block : document_.blocks) {
      if (block.kind == BlockKind::kYaml && !block.title.empty())
        found_.files[block.title] = block.text;
    }
    for (const ScriptWay& way : run.ways) Ways(way);
    for (const RecipeBlock& block : document_.blocks) {
      if (block.kind == BlockKind::kYaml) Services(block);
      if (block.kind == BlockKind::kPython) Python(block);
    }
    return std::move(found_);
  }

 private:
  void Ways(const ScriptWay& way) {
    for (const RanCommand& command : way.commands) {
      Take(WithoutRunners(command.words), command.line, command.environment, way.conditions);
      for (const ShellHereDocument& document : command.here_documents) {
        if (command.output_file.empty()) continue;
        found_.files[command.output_file] = document.body;
        if (!command.output_file.ends_with(".sh")) continue;
        // Follows the author's intention: the variables of a written script are set when the script
        // runs, not when it is written.
        const ScriptRun inner = RunScripts({ReadShellScript(document.body, document.line)});
        for (const ScriptWay& inner_way : inner.ways) Ways(inner_way);
      }
    }
  }

  void Take(const std::vector<std::string>& words, int line,
            const std::map<std::string, std::string>& environment,
            const std::vector<std::string>& conditions) {
    if (words.empty()) return;
    if (const auto contained = AsContainer(words))
      return Take(WithoutRunners(contained->words), line, contained->environment, conditions);
    if (const std::string script = ScriptOf(words); !script.empty() && depth_ < kDeepestShell) {
      ++depth_;
      for (const ScriptWay& way : RunScripts({ReadShellScript(script, 1)}).ways) {
        for (const RanCommand& command : way.commands) {
          std::map<std::string, std::string> all = environment;
          for (const auto& [name, value] : command.environment) all[name] = value;
          Take(WithoutRunners(command.words), line, all, conditions);
        }
      }
      --depth_;
      return;
    }
    if (auto launch = AsLaunch(words)) {
      launch->line = line;
      launch->environment = environment;
      launch->conditions = conditions;
      AddLaunch(*std::move(launch));
      return;
    }
    std::optional<RecipeRequest> request;
    const std::string name = NameOf(words[0]);
    if (IsBench(words)) {
      request = AsBench(words);
    } else if (name == "lm_eval" || name == "lm-eval") {
      request = AsLmEval(words);
    } else if (name == "curl") {
      request = AsCurl(words);
    }
    if (!request) return;
    request->line = line;
    request->conditions = conditions;
    AddRequest(*std::move(request));
  }

  // Merges equal launches of several paths. Keeps only the conditions that are common to them.
  void AddLaunch(RecipeLaunch launch) {
    for (RecipeLaunch& known : found_.launches) {
      if (known.line != launch.line || known.words != launch.words ||
          known.environment != launch.environment)
        continue;
      std::erase_if(known.conditions, [&](const std::string& condition) {
        return std::find(launch.conditions.begin(), launch.conditions.end(), condition) ==
               launch.conditions.end();
      });
      return;
    }
    found_.launches.push_back(std::move(launch));
  }

  void AddRequest(RecipeRequest request) {
    const auto same = [&](const RecipeRequest& known) {
      return known.line == request.line && known.model == request.model;
    };
    if (std::none_of(found_.requests.begin(), found_.requests.end(), same))
      found_.requests.push_back(std::move(request));
  }

  // Finds launches in Compose files (at the top level or under `services`) and in Kubernetes
  // manifests.
  void Services(const RecipeBlock& block) {
    std::vector<YAML::Node> documents;
    try {
      documents = YAML::LoadAll(block.text);
    } catch (const YAML::Exception&) {
      return;  // CheckFiles reports this error
    }
    for (const YAML::Node& root : documents) {
      if (!root.IsMap()) continue;
      if (root["apiVersion"] && root["kind"]) {
        Containers(block, root, /*depth=*/0);
        continue;
      }
      const YAML::Node services = root["services"] ? root["services"] : root;
      if (!services.IsMap()) continue;
      for (const auto& service : services) {
        if (service.second.IsMap()) TakeContainer(block, service.second, "entrypoint", "command");
      }
    }
  }

  void Containers(const RecipeBlock& block, const YAML::Node& node, int depth) {
    constexpr int kDeepest = 32;
    if (depth > kDeepest) return;
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) Containers(block, item, depth + 1);
    } else if (node.IsMap()) {
      for (const auto& member : node) {
        if (ScalarOf(member.first) != "containers" || !member.second.IsSequence()) {
          Containers(block, member.second, depth + 1);
          continue;
        }
        for (const YAML::Node& container : member.second) {
          if (container.IsMap()) TakeContainer(block, container, "command", "args");
        }
      }
    }
  }

  // `program` and `rest`: the YAML keys of the entry point and of the arguments.
  void TakeContainer(const RecipeBlock& block, const YAML::Node& node, const char* program,
                     const char* rest) {
    const YAML::Node first = node[program] ? node[program] : node[rest];
    if (!first) return;
    std::vector<std::string> entry_point, words;
    if (node[program]) entry_point = WordsOf(node[program]);
    if (node[rest]) words = WordsOf(node[rest]);
    const std::map<std::string, std::string> environment =
        EnvironmentOf(node["env"] ? node["env"] : node["environment"]);
    Take(ProgramOf(ScalarOf(node["image"]), std::move(entry_point), words),
         block.line + first.Mark().line, environment, {});
  }

  void Python(const RecipeBlock& block) {
    static const std::regex kModel(R"re(\bmodel\s*=\s*["']([^"']{1,200})["'])re");
    std::smatch match;
    RecipeRequest request;
    request.kind = RequestKind::kPython;
    request.line = block.line;
    if (!std::regex_search(block.text, match, kModel)) return;
    request.model = match[1];
    request.line += static_cast<int>(std::count(block.text.begin(), match[0].first, '\n'));
    FindAddress(block.text, request);
    AddRequest(std::move(request));
  }

  static constexpr int kDeepestShell = 4;

  const RecipeDocument& document_;
  RecipeCommands found_;
  int depth_ = 0;  // nesting depth of shells
};

}  // namespace

RecipeCommands FindCommands(const RecipeDocument& document, const ScriptRun& run) {
  return CommandFinder(document).Find(run);
}

}  // namespace sluice
