#include "recipe/shell_run.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kMaxWays = 16;

// An `if` of one of the scripts.
struct Fork {
  size_t script;
  int if_id;
  int num_branches;  // number of branches, including an implicit `else`
};

bool LooksLikeName(const std::string& word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
         });
}

std::vector<std::string> NamesIn(const std::string& arithmetic) {
  std::vector<std::string> names;
  std::string word;
  for (const char c : arithmetic + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    if (LooksLikeName(word)) names.push_back(word);
    word.clear();
  }
  return names;
}

class Shell {
 public:
  Shell(const std::vector<ShellScript>& scripts, const std::vector<Fork>& forks,
        const std::vector<int>& chosen, ScriptRun& run)
      : scripts_(scripts), forks_(forks), chosen_(chosen), run_(run) {}

  ScriptWay Run() {
    for (size_t i = 0; i < forks_.size(); ++i) DescribeChoice(i);
    for (size_t script = 0; script < scripts_.size(); ++script) {
      for (const ShellCommand& command : scripts_[script].commands) {
        if (OnThisWay(script, command)) Execute(command);
      }
    }
    return std::move(way_);
  }

 private:
  void DescribeChoice(size_t i) {
    const ShellIf& whole = scripts_[forks_[i].script].ifs[static_cast<size_t>(forks_[i].if_id)];
    const auto branch = static_cast<size_t>(chosen_[i]);
    if (branch < whole.conditions.size() && !whole.conditions[branch].empty()) {
      way_.conditions.push_back(whole.conditions[branch]);
      return;
    }
    for (const std::string& condition : whole.conditions) {
      if (!condition.empty()) way_.conditions.push_back("not: " + condition);
    }
  }

  bool OnThisWay(size_t script, const ShellCommand& command) const {
    return std::all_of(command.branches.begin(), command.branches.end(),
                       [&](const ShellBranch& branch) {
                         for (size_t i = 0; i < forks_.size(); ++i) {
                           if (forks_[i].script == script && forks_[i].if_id == branch.if_id)
                             return chosen_[i] == branch.branch;
                         }
                         return true;
                       });
  }

  // Returns the value of a part. An unset variable is recorded and its value is "".
  std::string ValueOf(const ShellPart& part, int line) {
    switch (part.kind) {
      case ShellPart::Kind::kText: return part.text;
      case ShellPart::Kind::kCommand: return "$(...)";
      case ShellPart::Kind::kArithmetic:
        for (const std::string& name : NamesIn(part.text)) ValueOfVariable(name, line);
        return "$((...))";
      case ShellPart::Kind::kVariable:
        if (part.otherwise && !variables_.contains(part.text))
          return Expanded(*part.otherwise, line);
        return ValueOfVariable(part.text, line);
    }
    return "";
  }

  // Expands the TEXT of ${NAME:-TEXT}, which may contain variables.
  std::string Expanded(const std::string& text, int line) {
    if (text.find('$') == std::string::npos || depth_ == kDeepest) return text;
    ++depth_;
    std::string quoted = "_=\"";
    for (const char c : text) {
      if (c == '"') continue;
      quoted += c;
    }
    const ShellScript script = ReadShellScript(quoted + "\"", line);
    std::string value;
    if (!script.commands.empty() && !script.commands[0].assignments.empty())
      value = Joined(script.commands[0].assignments[0].value, line);
    --depth_;
    return value;
  }

  std::string ValueOfVariable(const std::string& name, int line) {
    if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
    unset_.push_back(name);
    if (!ComesFromEnvironment(name)) {
      const auto same = [&](const UnsetVariable& u) { return u.name == name && u.line == line; };
      if (std::none_of(run_.unset.begin(), run_.unset.end(), same))
        run_.unset.push_back({name, line});
    }
    return "";
  }

  std::string Joined(const ShellWord& word, int line) {
    std::string text;
    for (const ShellPart& part : word) text += ValueOf(part, line);
    return text;
  }

  // Unquoted expansions are split at spaces, and removed if empty.
  void Expand(const ShellWord& word, int line, std::vector<std::string>& words) {
    std::string text;
    bool exists = false;
    for (const ShellPart& part : word) {
      const std::string value = ValueOf(part, line);
      if (part.kind == ShellPart::Kind::kText || part.quoted) {
        text += value;
        exists = true;
        continue;
      }
      for (const char c : value) {
        if (c == ' ' || c == '\t' || c == '\n') {
          if (exists) words.push_back(std::exchange(text, ""));
          exists = false;
        } else {
          text += c;
          exists = true;
        }
      }
    }
    if (exists) words.push_back(std::move(text));
  }

  void Assign(const std::string& name, std::string value, int line) {
    run_.assigned.try_emplace(name, line);
    if (exported_.contains(name)) environment_[name] = value;
    variables_[name] = std::move(value);
  }

  void Execute(const ShellCommand& command) {
    RanCommand ran;
    ran.line = command.line;
    unset_.clear();
    for (const ShellWord& word : command.words) Expand(word, command.line, ran.words);
    std::map<std::string, std::string> own;
    for (const ShellAssignment& assignment : command.assignments) {
      std::string value = Joined(assignment.value, command.line);
      if (command.words.empty()) {
        Assign(assignment.name, std::move(value), command.line);
      } else {
        own[assignment.name] = std::move(value);
      }
    }
    for (const ShellRedirect& redirect : command.redirects) {
      std::string target = Joined(redirect.target, command.line);
      if (redirect.symbol.starts_with('>')) ran.output_file = std::move(target);
    }
    ran.unset = unset_;
    if (ran.words.empty() && command.here_documents.empty() && ran.output_file.empty()) return;
    if (!ran.words.empty() && ran.words[0] == "export") {
      Export(ran);
      return;
    }
    if (ran.words.size() > 1 && ran.words[0] == "for") {
      // A loop's body runs only once, with the first value.
      Assign(ran.words[1], ran.words.size() > 3 ? ran.words[3] : "", command.line);
      return;
    }
    ran.environment = environment_;
    for (auto& [name, value] : own) ran.environment[name] = value;
    ran.here_documents = command.here_documents;
    ran.background = command.background;
    way_.commands.push_back(std::move(ran));
  }

  void Export(const RanCommand& command) {
    for (size_t i = 1; i < command.words.size(); ++i) {
      const size_t equals = command.words[i].find('=');
      const std::string name = command.words[i].substr(0, equals);
      exported_.insert(name);
      if (equals != std::string::npos) {
        Assign(name, command.words[i].substr(equals + 1), command.line);
      } else if (const auto found = variables_.find(name); found != variables_.end()) {
        environment_[name] = found->second;
      }
    }
  }

  const std::vector<ShellScript>& scripts_;
  const std::vector<Fork>& forks_;
  const std::vector<int>& chosen_;
  ScriptRun& run_;
  ScriptWay way_;
  std::map<std::string, std::string> variables_, environment_;
  std::set<std::string> exported_;
  static constexpr int kDeepest = 8;
  int depth_ = 0;  // nesting depth of expansions
  std::vector<std::string> unset_;
};

}  // namespace

bool ComesFromEnvironment(const std::string& name) {
  return std::none_of(name.begin(), name.end(),
                      [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; });
}

ScriptRun RunScripts(const std::vector<ShellScript>& scripts) {
  std::vector<Fork> forks;
  for (size_t script = 0; script < scripts.size(); ++script) {
    for (size_t id = 0; id < scripts[script].ifs.size(); ++id) {
      const ShellIf& whole = scripts[script].ifs[id];
      const int branches = static_cast<int>(whole.conditions.size()) + (whole.has_else ? 0 : 1);
      forks.push_back({script, static_cast<int>(id), branches});
    }
  }
  ScriptRun run;
  std::vector<int> chosen(forks.size(), 0);
  while (run.ways.size() < kMaxWays) {
    ScriptWay way = Shell(scripts, forks, chosen, run).Run();
    run.ways.push_back(std::move(way));
    size_t i = 0;
    while (i < forks.size() && ++chosen[i] == forks[i].num_branches) chosen[i++] = 0;
    if (i == forks.size()) break;
  }
  return run;
}

std::vector<std::string> ExpandedVariables(const std::string& text) {
  // Expands as inside double quotes, where single quotes are literal.
  std::string plain;
  for (const char c : text)
    plain += c == '"' || c == '\'' ? std::string(1, ' ') : std::string(1, c);
  std::vector<std::string> names;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '\\') {
      ++i;
      continue;
    }
    if (plain[i] != '$') continue;
    if (plain.compare(i, 3, "$((") == 0) {
      const size_t end = std::min(plain.find("))", i), plain.size());
      for (std::string& name : NamesIn(plain.substr(i + 3, end - i - 3)))
        names.push_back(std::move(name));
      i = end;
      continue;
    }
    size_t begin = i + 1;
    if (begin < plain.size() && plain[begin] == '{') ++begin;
    size_t end = begin;
    while (end < plain.size() &&
           (std::isalnum(static_cast<unsigned char>(plain[end])) != 0 || plain[end] == '_'))
      ++end;
    if (const std::string name = plain.substr(begin, end - begin); LooksLikeName(name))
      names.push_back(name);
  }
  return names;
}

}  // namespace sluice
