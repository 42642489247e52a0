#include "recipe/shell_script.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace sluice {
namespace {

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool IsPlain(const ShellWord& word, std::string_view text) {
  return word.size() == 1 && word[0].kind == ShellPart::Kind::kText && !word[0].quoted &&
         word[0].text == text;
}

class ShellReader {
 public:
  ShellReader(std::string_view text, int first_line) : text_(text), line_(first_line) {}

  ShellScript Read() {
    NoteTrailingBackslash();
    while (at_ < text_.size()) Step();
    EndCommand(false);
    return std::move(script_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  char Take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }

  void NoteTrailingBackslash() {
    const size_t last = text_.find_last_not_of(" \t\r\n");
    if (last == std::string_view::npos || text_[last] != '\\') return;
    script_.trailing_backslash_line =
        line_ +
        static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<long>(last), '\n'));
  }

  void Step() {
    const char c = Peek();
    if (c == '\\' && Peek(1) == '\n') {
      Take();
      Take();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      Take();
    } else if (c == '#') {
      Comment();
    } else if (c == '\n') {
      EndCommand(false);
      Take();
      ReadHereDocuments();
    } else if (c == ';' || c == '|' || c == '(' || c == ')') {
      EndCommand(false);
      Take();
    } else if (c == '&') {
      Take();
      const bool both = Peek() == '&';
      if (both) Take();
      EndCommand(!both);
    } else if (c == '<' || c == '>') {
      Redirect();
    } else {
      Begin();
      current_.words.push_back(Word());
    }
  }

  void Begin() {
    if (current_.line == 0) current_.line = line_;
  }

  void Comment() {
    const int line = line_;
    std::string comment;
    Take();
    while (at_ < text_.size() && Peek() != '\n') comment += Take();
    script_.comments.push_back(std::move(comment));
    script_.comment_lines.push_back(line);
  }

  void Redirect() {
    Begin();
    // A number before the redirection is a file descriptor, not a word.
    if (!current_.words.empty() && at_ > 0 &&
        std::isdigit(static_cast<unsigned char>(text_[at_ - 1])) != 0) {
      current_.words.pop_back();
    }
    std::string symbol(1, Take());
    while (Peek() == '<' || Peek() == '>' || Peek() == '&') symbol += Take();
    if (symbol == "<<" && Peek() == '-') symbol += Take();
    while (Peek() == ' ' || Peek() == '\t') Take();
    const size_t begin = at_;
    ShellWord target = Word();
    if (symbol != "<<" && symbol != "<<-") {
      current_.redirects.push_back({std::move(symbol), std::move(target)});
      return;
    }
    ShellHereDocument document;
    for (const ShellPart& part : target) document.delimiter += part.text;
    const std::string_view raw = text_.substr(begin, at_ - begin);
    document.quoted = raw.find_first_of("'\"\\") != std::string_view::npos;
    pending_.push_back({current_.here_documents.size(), script_.commands.size(), symbol == "<<-"});
    current_.here_documents.push_back(std::move(document));
  }

  // The bodies of here-documents begin after the line of the command.
  void ReadHereDocuments() {
    for (const Pending& pending : pending_) {
      if (pending.command >= script_.commands.size()) continue;
      ShellHereDocument& document = script_.commands[pending.command].here_documents[pending.index];
      document.line = line_;
      while (at_ < text_.size()) {
        std::string body_line;
        while (at_ < text_.size() && Peek() != '\n') body_line += Take();
        if (at_ < text_.size()) Take();
        if (pending.strip_tabs) body_line.erase(0, body_line.find_first_not_of('\t'));
        if (body_line == document.delimiter) break;
        document.body += body_line + "\n";
      }
    }
    pending_.clear();
  }

  ShellWord Word() {
    ShellWord word;
    std::string text;
    bool text_quoted = false;
    const auto flush = [&] {
      if (!text.empty() || text_quoted)
        word.push_back({ShellPart::Kind::kText, std::move(text), text_quoted});
      text.clear();
      text_quoted = false;
    };
    while (at_ < text_.size()) {
      const char c = Peek();
      if (c == '\\') {
        Take();
        if (at_ == text_.size()) break;
        if (Peek() == '\n') {
          Take();
          continue;
        }
        text += Take();
      } else if (c == '\'') {
        flush();
        Take();
        text_quoted = true;
        while (at_ < text_.size() && Peek() != '\'') text += Take();
        if (at_ < text_.size()) Take();
        flush();
      } else if (c == '"') {
        flush();
        Take();
        DoubleQuoted(word);
      } else if (c == '$') {
        flush();
        if (auto part = Expansion(false)) {
          word.push_back(*std::move(part));
        } else {
          text += '$';
        }
      } else if (std::string_view(" \t\r\n;|&()<>").find(c) != std::string_view::npos) {
        break;
      } else {
        text += Take();
      }
    }
    flush();
    return word;
  }

  void DoubleQuoted(ShellWord& word) {
    std::string text;
    bool any = false;
    const auto flush = [&] {
      if (!text.empty()) word.push_back({ShellPart::Kind::kText, std::move(text), true});
      any = any || !word.empty();
      text.clear();
    };
    while (at_ < text_.size() && Peek() != '"') {
      if (Peek() == '\\' && std::string_view("$`\"\\\n").find(Peek(1)) != std::string_view::npos) {
        Take();
        const char escaped = Take();
        if (escaped != '\n') text += escaped;
      } else if (Peek() == '$') {
        flush();
        if (auto part = Expansion(true)) {
          word.push_back(*std::move(part));
        } else {
          text += '$';
        }
      } else {
        text += Take();
      }
    }
    if (at_ < text_.size()) Take();
    flush();
    if (!any) word.push_back({ShellPart::Kind::kText, "", true});
  }

  // Returns the text up to the matching closing bracket. Consumes the bracket.
  std::string Until(char open, char close) {
    std::string text;
    int depth = 1;
    while (at_ < text_.size()) {
      const char c = Take();
      if (c == open) ++depth;
      if (c == close && --depth == 0) break;
      text += c;
    }
    return text;
  }

  // Parses an expansion at a dollar sign and consumes it. nullopt if the dollar sign is literal.
  std::optional<ShellPart> Expansion(bool quoted) {
    Take();
    const char c = Peek();
    if (c == '(' && Peek(1) == '(') {
      Take();
      Take();
      std::string text = Until('(', ')');
      if (Peek() == ')') Take();
      return ShellPart{ShellPart::Kind::kArithmetic, std::move(text), quoted};
    }
    if (c == '(') {
      Take();
      return ShellPart{ShellPart::Kind::kCommand, Until('(', ')'), quoted};
    }
    if (c == '{') {
      Take();
      std::string text = Until('{', '}');
      const size_t end = static_cast<size_t>(
          std::find_if_not(text.begin(), text.end(), IsNameCharacter) - text.begin());
      ShellPart part{ShellPart::Kind::kVariable, text.substr(0, end), quoted};
      std::string_view rest = std::string_view(text).substr(end);
      if (rest.starts_with(':')) rest.remove_prefix(1);
      if (rest.starts_with('-') || rest.starts_with('=')) part.otherwise = rest.substr(1);
      return part;
    }
    if (!IsNameStart(c)) return std::nullopt;
    std::string name;
    while (IsNameCharacter(Peek())) name += Take();
    return ShellPart{ShellPart::Kind::kVariable, std::move(name), quoted};
  }

  // Moves leading NAME=VALUE words to the assignments.
  static void SplitAssignments(ShellCommand& command) {
    size_t count = 0;
    for (ShellWord& word : command.words) {
      if (word.empty() || word[0].kind != ShellPart::Kind::kText || word[0].quoted) break;
      std::string& text = word[0].text;
      const size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0 || !IsNameStart(text[0]) ||
          !std::all_of(text.begin(), text.begin() + static_cast<long>(equals), IsNameCharacter)) {
        break;
      }
      ShellAssignment assignment{text.substr(0, equals), word};
      assignment.value[0].text.erase(0, equals + 1);
      command.assignments.push_back(std::move(assignment));
      ++count;
    }
    command.words.erase(command.words.begin(), command.words.begin() + static_cast<long>(count));
  }

  static std::string Written(const std::vector<ShellWord>& words) {
    std::string text;
    for (const ShellWord& word : words) {
      if (!text.empty()) text += ' ';
      for (const ShellPart& part : word) {
        text += part.kind == ShellPart::Kind::kText ? part.text : "$" + part.text;
      }
    }
    return text;
  }

  // Removes leading shell keywords. Returns whether a command remains.
  bool TakeKeywords() {
    auto& words = current_.words;
    const auto drop = [&] { words.erase(words.begin()); };
    while (!words.empty()) {
      if (IsPlain(words[0], "if") || IsPlain(words[0], "elif")) {
        const bool first = IsPlain(words[0], "if");
        drop();
        if (first) {
          open_.push_back({static_cast<int>(script_.ifs.size()), -1});
          script_.ifs.emplace_back();
        }
        if (!open_.empty()) IfOf(open_.back()).conditions.push_back(Written(words));
        return false;
      }
      if (IsPlain(words[0], "then") || IsPlain(words[0], "else")) {
        if (!open_.empty()) {
          ++open_.back().branch;
          if (IsPlain(words[0], "else")) {
            IfOf(open_.back()).has_else = true;
            IfOf(open_.back()).conditions.emplace_back();
          }
        }
        drop();
      } else if (IsPlain(words[0], "fi")) {
        if (!open_.empty()) open_.pop_back();
        drop();
      } else if (IsPlain(words[0], "do") || IsPlain(words[0], "done") || IsPlain(words[0], "{") ||
                 IsPlain(words[0], "}") || IsPlain(words[0], "while") ||
                 IsPlain(words[0], "until") || IsPlain(words[0], "!")) {
        drop();
      } else {
        return true;
      }
    }
    return false;
  }

  ShellIf& IfOf(const ShellBranch& branch) {
    return script_.ifs[static_cast<size_t>(branch.if_id)];
  }

  void EndCommand(bool background) {
    if (current_.line == 0) return;
    const bool has_words = TakeKeywords();
    if (has_words) SplitAssignments(current_);
    if (has_words || !current_.redirects.empty() || !current_.here_documents.empty()) {
      current_.background = background;
      current_.branches = open_;
      script_.commands.push_back(std::move(current_));
    }
    current_ = {};
  }

  struct Pending {
    size_t index;
    size_t command;
    bool strip_tabs;
  };

  const std::string_view text_;
  size_t at_ = 0;
  int line_;
  ShellScript script_;
  ShellCommand current_;
  std::vector<ShellBranch> open_;
  std::vector<Pending> pending_;
};

}  // namespace

ShellScript ReadShellScript(std::string_view text, int first_line) {
  return ShellReader(text, first_line).Read();
}

}  // namespace sluice
