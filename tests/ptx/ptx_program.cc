#include "ptx_program.h"

#include <cxxabi.h>

#include <bit>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace sluice::ptx {
namespace {

constexpr std::pair<const char*, Type> kTypes[] = {
    {"pred", Type::kPred},     {"b8", Type::kB8},       {"u8", Type::kU8},
    {"s8", Type::kS8},         {"b16", Type::kB16},     {"u16", Type::kU16},
    {"s16", Type::kS16},       {"b32", Type::kB32},     {"u32", Type::kU32},
    {"s32", Type::kS32},       {"b64", Type::kB64},     {"u64", Type::kU64},
    {"s64", Type::kS64},       {"f16", Type::kF16},     {"f32", Type::kF32},
    {"f64", Type::kF64},       {"f16x2", Type::kF16x2}, {"bf16", Type::kBf16},
    {"bf16x2", Type::kBf16x2}, {"e4m3", Type::kE4m3},   {"e4m3x2", Type::kE4m3x2}};

constexpr std::pair<const char*, Op> kOps[] = {
    {"abs", Op::kAbs},      {"add", Op::kAdd},     {"and", Op::kAnd},
    {"bfi", Op::kBfi},      {"bfind", Op::kBfind}, {"bra", Op::kBra},
    {"brev", Op::kBrev},    {"cvt", Op::kCvt},     {"cvta", Op::kMov},
    {"div", Op::kDiv},      {"ex2", Op::kEx2},     {"fma", Op::kFma},
    {"fence", Op::kMembar}, {"ld", Op::kLd},       {"ldmatrix", Op::kLdmatrix},
    {"mad", Op::kMad},      {"max", Op::kMax},     {"membar", Op::kMembar},
    {"min", Op::kMin},      {"mma", Op::kMma},     {"mov", Op::kMov},
    {"mul", Op::kMul},      {"neg", Op::kNeg},     {"not", Op::kNot},
    {"or", Op::kOr},        {"popc", Op::kPopc},   {"prmt", Op::kPrmt},
    {"rcp", Op::kRcp},      {"rem", Op::kRem},     {"ret", Op::kRet},
    {"rsqrt", Op::kRsqrt},  {"selp", Op::kSelp},   {"setp", Op::kSetp},
    {"shfl", Op::kShfl},    {"shl", Op::kShl},     {"shr", Op::kShr},
    {"sqrt", Op::kSqrt},    {"st", Op::kSt},       {"sub", Op::kSub},
    {"vote", Op::kVote},    {"xor", Op::kXor}};

std::vector<std::string> Split(std::string_view text, char by) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (c == by && depth == 0) {
      parts.push_back(part);
      part.clear();
    } else if (!std::isspace(static_cast<unsigned char>(c))) {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

// Reads one file.
class Reader {
 public:
  Reader(const std::string& path, Program& program) : path_(path), program_(program) {}

  void Read() {
    std::ifstream file(path_);
    if (!file) Die("cannot be opened");
    std::stringstream all;
    all << file.rdbuf();
    text_ = all.str();
    while (SkipSpace()) ReadTop();
  }

 private:
  [[noreturn]] void Die(const std::string& what) const {
    fprintf(stderr, "%s:%d: %s\n", path_.c_str(), line_, what.c_str());
    exit(1);
  }

  // Moves to the next character that is neither space nor comment. Returns false at the end.
  bool SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else if (text_.compare(at_, 2, "//") == 0) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return true;
      }
    }
    return false;
  }

  // Returns the text up to the first of `ends`, and moves past that character.
  std::string Until(const char* ends) {
    const size_t end = text_.find_first_of(ends, at_);
    if (end == std::string::npos) Die("the file ends too soon");
    std::string found = text_.substr(at_, end - at_);
    for (const char c : found) line_ += c == '\n';
    at_ = end + 1;
    return found;
  }

  std::string Word() {
    std::string word;
    while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_])))
      word += text_[at_++];
    return word;
  }

  void ReadTop() {
    const std::string word = Word();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      SkipSpace();
      static_cast<void>(Word());
    } else if (word == ".global" || word == ".extern") {
      ReadVariable(Until(";"));
    } else if (word == ".visible" || word == ".entry") {
      ReadEntry(word == ".entry" ? "" : ".entry");
    } else {
      Die("unknown directive " + word);
    }
  }

  // Reads a variable such as " .align 4 .b8 name[16] = {1, 2}".
  void ReadVariable(const std::string& text) {
    const size_t bracket = text.find('[');
    if (bracket == std::string::npos) Die("a variable that is no array of bytes");
    size_t begin = text.rfind(' ', bracket);
    if (text.find(".b8") == std::string::npos) Die("a variable that is no array of bytes");
    const std::string name = text.substr(begin + 1, bracket - begin - 1);
    if (text.find(".shared") != std::string::npos) {
      shared_.push_back(name);
      return;
    }
    auto variable = std::make_unique<Variable>();
    variable->name = name;
    variable->bytes.resize(static_cast<size_t>(atoi(text.c_str() + bracket + 1)));
    if (const size_t list = text.find('{'); list != std::string::npos) {
      size_t i = 0;
      for (const std::string& number : Split(text.substr(list + 1, text.find('}') - list - 1), ','))
        variable->bytes.at(i++) = static_cast<unsigned char>(atoi(number.c_str()));
    }
    const std::string key = path_ + ":" + name;
    globals_[name] = variable.get();
    program_.globals[key] = std::move(variable);
  }

  void ReadEntry(const std::string& next) {
    if (!next.empty()) {
      SkipSpace();
      if (Word() != next) Die("expected " + next);
    }
    SkipSpace();
    kernel_ = Kernel();
    kernel_.symbol = Until("(");
    kernel_.name = Demangled(kernel_.symbol);
    static_cast<void>(Until(")"));
    static_cast<void>(Until("{"));  // skips hints about registers and blocks
    registers_.clear();
    labels_.clear();
    branches_.clear();
    locals_.clear();
    scopes_.assign(1, {});
    num_scopes_ = 0;
    while (!scopes_.empty()) ReadStatement();
    for (const auto& [number, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) Die("no label " + label);
      kernel_.instructions[number].target = found->second;
    }
    kernel_.num_registers = static_cast<uint32_t>(registers_.size());
    const std::string name = kernel_.name;
    if (!program_.kernels.emplace(name, std::move(kernel_)).second) Die("two kernels " + name);
  }

  void ReadStatement() {
    if (!SkipSpace()) Die("the file ends in a kernel");
    if (text_[at_] == '}') {
      ++at_;
      scopes_.pop_back();
      return;
    }
    if (text_[at_] == '{') {
      ++at_;
      scopes_.emplace_back();
      return;
    }
    if (text_[at_] == '.') return ReadDeclaration(Until(";"));
    const size_t end = text_.find_first_of(";:", at_);
    if (end != std::string::npos && text_[end] == ':' && text_[end + 1] != ':') {
      labels_[Until(":")] = static_cast<uint32_t>(kernel_.instructions.size());
      return;
    }
    ReadInstruction(Until(";"));
  }

  // Reads a declaration. Names in an inner scope of the kernel belong to that scope.
  void ReadDeclaration(const std::string& text) {
    if (text.compare(0, 6, ".local") == 0) {
      const size_t bracket = text.find('[');
      const size_t begin = text.find_last_of(" \t", bracket);
      locals_[text.substr(begin + 1, bracket - begin - 1)] = kernel_.local_bytes;
      kernel_.local_bytes += static_cast<uint32_t>(atoi(text.c_str() + bracket + 1) + 15) / 16 * 16;
      return;
    }
    if (text.compare(0, 7, ".pragma") == 0) return;  // hints for the assembler
    if (text.compare(0, 4, ".reg") != 0) Die("unknown declaration " + text);
    if (scopes_.size() == 1) return;  // names in the outermost scope stay as they are
    const std::string names = text.substr(text.find_first_of(" \t", text.find('.', 1)) + 1);
    for (const std::string& name : Split(names, ','))
      scopes_.back()[name] = name + "@" + std::to_string(num_scopes_++);
  }

  uint32_t Register(std::string name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) {
        name = found->second;
        break;
      }
    }
    return registers_.emplace(name, static_cast<uint32_t>(registers_.size())).first->second;
  }

  bool IsScoped(const std::string& name) const {
    for (const auto& scope : scopes_) {
      if (scope.contains(name)) return true;
    }
    return false;
  }

  Operand ReadOperand(const std::string& text) {
    static const std::map<std::string, uint64_t> kSpecials = {
        {"%tid.x", kTidX},      {"%tid.y", kTidY},       {"%tid.z", kTidZ},
        {"%ntid.x", kNtidX},    {"%ctaid.x", kCtaidX},   {"%ctaid.y", kCtaidY},
        {"%ctaid.z", kCtaidZ},  {"%nctaid.x", kNctaidX}, {"%nctaid.y", kNctaidY},
        {"%nctaid.z", kNctaidZ}};
    Operand operand;
    if (text.empty()) Die("an empty operand");
    if (text == "_") return operand;  // a result that is discarded
    if (text[0] == '!') {
      operand = ReadOperand(text.substr(1));
      operand.is_negated = true;
      return operand;
    }
    if (const auto special = kSpecials.find(text); special != kSpecials.end()) {
      operand.kind = Operand::Kind::kSpecial;
      operand.value = special->second;
      return operand;
    }
    if (text[0] == '%' || IsScoped(text)) {
      operand.kind = Operand::Kind::kRegister;
      operand.index = Register(text);
      return operand;
    }
    operand.kind = Operand::Kind::kConstant;
    if (text.compare(0, 2, "0f") == 0 || text.compare(0, 2, "0d") == 0) {
      operand.value = strtoull(text.c_str() + 2, nullptr, 16);
      return operand;
    }
    if (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-') {
      operand.value = text[0] == '-' ? static_cast<uint64_t>(strtoll(text.c_str(), nullptr, 0))
                                     : strtoull(text.c_str(), nullptr, 0);
      return operand;
    }
    return SymbolOf(text);
  }

  // Returns the address of a variable: of the host for global memory, else the offset in shared,
  // local or parameter memory.
  Operand SymbolOf(const std::string& name) {
    Operand operand;
    operand.kind = Operand::Kind::kConstant;
    if (name == kernel_.symbol + "_param_0") return operand;
    for (const std::string& shared : shared_) {
      if (name == shared) return operand;
    }
    if (const auto local = locals_.find(name); local != locals_.end()) {
      operand.value = local->second;
      return operand;
    }
    const auto global = globals_.find(name);
    if (global == globals_.end()) Die("unknown name " + name);
    operand.value = std::bit_cast<uint64_t>(global->second->bytes.data());
    return operand;
  }

  // Adds "[%rd1+8]", "{%r1, %r2}", "%r1|%p1", or a single operand.
  void AddOperands(const std::string& text, std::vector<Operand>& to) {
    if (text[0] == '{') {
      for (const std::string& part : Split(text.substr(1, text.size() - 2), ','))
        to.push_back(ReadOperand(part));
    } else if (text[0] == '[') {
      const std::vector<std::string> parts = Split(text.substr(1, text.size() - 2), ',');
      const std::string& inside = parts.at(0);
      const size_t plus = inside.find('+');
      to.push_back(ReadOperand(inside.substr(0, plus)));
      Operand offset;
      offset.kind = Operand::Kind::kConstant;
      if (plus != std::string::npos)
        offset.value = static_cast<uint64_t>(strtoll(inside.c_str() + plus + 1, nullptr, 0));
      to.push_back(offset);
      // Coordinates in a tensor.
      for (size_t i = 1; i < parts.size(); ++i) AddOperands(parts[i], to);
    } else if (const size_t bar = text.find('|'); bar != std::string::npos) {
      to.push_back(ReadOperand(text.substr(0, bar)));
      to.push_back(ReadOperand(text.substr(bar + 1)));
    } else {
      to.push_back(ReadOperand(text));
    }
  }

  static bool HasResult(Op op) {
    switch (op) {
      case Op::kSt:
      case Op::kStmatrix:
      case Op::kBarrier:
      case Op::kBarrierArrive:
      case Op::kWarpBarrier:
      case Op::kRet:
      case Op::kMembar:
      case Op::kCopyAsync:
      case Op::kCommit:
      case Op::kWaitGroup:
      case Op::kBulkCopy:
      case Op::kTensorCopy:
      case Op::kProductCommit:
      case Op::kProductFence:
      case Op::kProductWait:
      case Op::kProxyFence:
      case Op::kMbarrierFence:
      case Op::kMbarrierInit:
      case Op::kMbarrierInvalidate:
      case Op::kSetMaxRegisters: return false;
      default: return true;
    }
  }

  void ReadInstruction(const std::string& text) {
    size_t at = 0;
    Instruction instruction{};
    instruction.line = line_;
    if (text[0] == '@') {
      at = text.find_first_of(" \t");
      instruction.guard = ReadOperand(text.substr(1, at - 1));
      at = text.find_first_not_of(" \t", at);
    }
    const size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    ReadName(text.substr(at, end - at), instruction);
    const std::vector<std::string> operands = Split(std::string_view(text).substr(end), ',');
    if (instruction.op == Op::kBra) {
      branches_.emplace_back(kernel_.instructions.size(), operands.at(0));
    } else {
      const bool has_result = HasResult(instruction.op);
      for (size_t i = 0; i < operands.size(); ++i) {
        AddOperands(operands[i], has_result && i == 0 ? instruction.to : instruction.from_operands);
      }
    }
    kernel_.instructions.push_back(std::move(instruction));
  }

  void ReadName(const std::string& name, Instruction& instruction) {
    const std::vector<std::string> words = Split(name, '.');
    size_t first = 1;
    const auto starts = [&](const char* with) { return name.compare(0, strlen(with), with) == 0; };
    if (starts("bar.warp.sync")) {
      instruction.op = Op::kWarpBarrier;
      return;
    }
    if (starts("bar.sync") || starts("barrier.sync") || starts("barrier.cta.sync")) {
      instruction.op = Op::kBarrier;
      return;
    }
    if (starts("bar.arrive") || starts("barrier.arrive") || starts("barrier.cta.arrive")) {
      instruction.op = Op::kBarrierArrive;
      return;
    }
    if (starts("mbarrier.")) return ReadMbarrier(name, words, instruction);
    if (name == "elect.sync") {
      instruction.op = Op::kElect;
      return;
    }
    if (starts("setmaxnreg.")) {
      instruction.op = Op::kSetMaxRegisters;
      return;
    }
    if (name == "fence.proxy.async" || name == "fence.proxy.async.shared::cta") {
      instruction.op = Op::kProxyFence;
      return;
    }
    if (name == "fence.mbarrier_init.release.cluster") {
      instruction.op = Op::kMbarrierFence;
      return;
    }
    if (name == "prefetch.tensormap") {
      instruction.op = Op::kMembar;  // changes nothing but the speed
      return;
    }
    if (name == "cvta.param.u64") {
      instruction.op = Op::kParamAddress;
      return;
    }
    if (starts("wgmma.")) return ReadProduct(name, instruction);
    if (starts("stmatrix.")) {
      instruction.op = Op::kStmatrix;
      instruction.is_transposed = name == "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
      if (name != "stmatrix.sync.aligned.m8n8.x4.shared.b16" && !instruction.is_transposed)
        Die("unknown instruction " + name);
      return;
    }
    if (starts("cp.async.bulk.tensor.")) {
      instruction.op = Op::kTensorCopy;
      bool is_known = false;
      for (const char* rank : {"2d", "3d"}) {
        for (const char* to : {".shared::cluster", ".shared::cta"}) {
          for (const char* mode : {".global", ".global.tile"}) {
            is_known |= name == std::string("cp.async.bulk.tensor.") + rank + to + mode +
                                    ".mbarrier::complete_tx::bytes";
          }
        }
      }
      if (!is_known) Die("unknown instruction " + name);
      return;
    }
    if (starts("cp.async.bulk.")) {
      instruction.op = Op::kBulkCopy;
      if (name != "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" &&
          name != "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes")
        Die("unknown instruction " + name);
      return;
    }
    if (name == "griddepcontrol.wait" || name == "griddepcontrol.launch_dependents") {
      instruction.op = words[1] == "wait" ? Op::kAwaitGrids : Op::kLetGrids;
      return;
    }
    if (starts("cp.async")) {
      if (name == "cp.async.cg.shared.global") {
        instruction.op = Op::kCopyAsync;
      } else if (name == "cp.async.commit_group") {
        instruction.op = Op::kCommit;
      } else if (name == "cp.async.wait_group") {
        instruction.op = Op::kWaitGroup;
      } else {
        Die("unknown instruction " + name);
      }
      return;
    }
    if (words[0] == "atom") {
      instruction.op = words.at(2) == "add" ? Op::kAtomAdd : Op::kAtomExch;
      if (words.at(2) != "add" && words.at(2) != "exch") Die("unknown instruction " + name);
      instruction.space = words[1] == "shared" ? Space::kShared : Space::kGlobal;
      first = 3;
    } else {
      bool is_known = false;
      for (const auto& [word, op] : kOps) {
        if (words[0] != word) continue;
        instruction.op = op;
        is_known = true;
      }
      if (!is_known) Die("unknown instruction " + name);
    }
    if (instruction.op == Op::kMma) return ReadMma(name, instruction);
    for (size_t i = first; i < words.size(); ++i) ReadModifier(name, words[i], instruction);
  }

  void ReadMbarrier(const std::string& name, const std::vector<std::string>& words,
                    Instruction& instruction) const {
    const std::string& what = words.at(1);
    const bool is_in_shared = name.ends_with(".shared.b64") || name.ends_with(".shared::cta.b64");
    if (what == "init") {
      instruction.op = Op::kMbarrierInit;
    } else if (what == "inval") {
      instruction.op = Op::kMbarrierInvalidate;
    } else if (what == "arrive") {
      instruction.op = words.at(2) == "expect_tx" ? Op::kMbarrierExpect : Op::kMbarrierArrive;
    } else if ((what == "try_wait" || what == "test_wait") && words.at(2) == "parity") {
      instruction.op = Op::kMbarrierWait;
    } else {
      Die("unknown instruction " + name);
    }
    if (!is_in_shared || name.find("noComplete") != std::string::npos)
      Die("unknown instruction " + name);
  }

  void ReadProduct(const std::string& name, Instruction& instruction) {
    kernel_.has_products = true;
    static const std::map<std::string, Op> kOthers = {
        {"wgmma.fence.sync.aligned", Op::kProductFence},
        {"wgmma.commit_group.sync.aligned", Op::kProductCommit},
        {"wgmma.wait_group.sync.aligned", Op::kProductWait}};
    if (const auto found = kOthers.find(name); found != kOthers.end()) {
      instruction.op = found->second;
      return;
    }
    instruction.op = Op::kProduct;
    instruction.type = Type::kF32;
    int columns = 0, depth = 0, length = 0;
    const char* const shape = "wgmma.mma_async.sync.aligned.m64n%dk%d.%n";
    if (sscanf(name.c_str(), shape, &columns, &depth, &length) != 2 || length == 0)
      Die("unknown instruction " + name);
    const std::string types = name.substr(static_cast<size_t>(length));
    instruction.from = types == "f32.e4m3.e4m3"   ? Type::kE4m3
                       : types == "f32.bf16.bf16" ? Type::kBf16
                                                  : Type::kNone;
    if (instruction.from == Type::kNone || depth != (instruction.from == Type::kE4m3 ? 32 : 16) ||
        columns < 8 || columns > 256 || columns % 8 != 0)
      Die("unknown instruction " + name);
    instruction.columns = static_cast<uint32_t>(columns);
  }

  void ReadMma(const std::string& name, Instruction& instruction) const {
    instruction.type = Type::kF32;
    if (name == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
      instruction.from = Type::kBf16;
    } else if (name == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") {
      instruction.from = Type::kF16;
    } else if (name == "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32") {
      instruction.from = Type::kE4m3;
    } else {
      Die("unknown instruction " + name);
    }
  }

  void ReadModifier(const std::string& name, const std::string& word,
                    Instruction& instruction) const {
    for (const auto& [type_name, type] : kTypes) {
      if (word != type_name) continue;
      // The last type is kept. A conversion has two: the first is the result's, the second the
      // argument's.
      if (instruction.op == Op::kCvt && instruction.type != Type::kNone) {
        instruction.from = type;
      } else {
        instruction.type = type;
      }
      return;
    }
    if (instruction.op == Op::kSetp) {
      static const std::map<std::string, Compare> kCompares = {
          {"eq", Compare::kEq},   {"ne", Compare::kNe},   {"lt", Compare::kLt},
          {"le", Compare::kLe},   {"gt", Compare::kGt},   {"ge", Compare::kGe},
          {"equ", Compare::kEqu}, {"neu", Compare::kNeu}, {"ltu", Compare::kLtu},
          {"leu", Compare::kLeu}, {"gtu", Compare::kGtu}, {"geu", Compare::kGeu},
          {"num", Compare::kNum}, {"nan", Compare::kNan}};
      const auto found = kCompares.find(word);
      if (found == kCompares.end()) Die("unknown instruction " + name);
      instruction.compare = found->second;
    } else if (word == "global" || word == "shared" || word == "local" || word == "param") {
      instruction.space = word == "global"   ? Space::kGlobal
                          : word == "shared" ? Space::kShared
                          : word == "local"  ? Space::kLocal
                                             : Space::kParam;
    } else if (word == "wide") {
      instruction.is_wide = true;
    } else if (word == "hi") {
      instruction.is_high = true;
    } else if (word == "sat") {
      instruction.is_saturated = true;
    } else if (word == "ftz") {
      instruction.flushes = true;
    } else if (word == "trans") {
      instruction.is_transposed = true;
    } else if (word == "shiftamt") {
      instruction.shifts_amount = true;
    } else if (word == "rm" || word == "rmi") {
      instruction.rounding = Rounding::kDown;
      instruction.to_integer = word == "rmi";
    } else if (word == "rz" || word == "rzi") {
      instruction.rounding = Rounding::kZero;
      instruction.to_integer = word == "rzi";
    } else if (word == "rni") {
      instruction.to_integer = true;
    } else if (word == "up" || word == "bfly" || word == "idx" || word == "down") {
      instruction.shape = word == "up"     ? Shape::kUp
                          : word == "bfly" ? Shape::kButterfly
                          : word == "idx"  ? Shape::kIndex
                                           : Shape::kDown;
    } else {
      static const char* const kWithoutEffect[] = {
          "rn",     "satfinite", "lo",      "approx",  "nc",      "cg",  "v2",   "v4",
          "uni",    "sync",      "to",      "full",    "gl",      "x4",  "m8n8", "aligned",
          "ballot", "acquire",   "release", "acq_rel", "relaxed", "gpu", "sys"};
      for (const char* known : kWithoutEffect) {
        if (word == known) return;
      }
      Die("unknown instruction " + name);
    }
  }

  const std::string path_;
  Program& program_;
  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<std::string> shared_;
  std::map<std::string, Variable*> globals_;
  // State of the kernel that is being read.
  Kernel kernel_;
  std::map<std::string, uint32_t> registers_, labels_, locals_;
  std::vector<std::pair<size_t, std::string>> branches_;
  std::vector<std::map<std::string, std::string>> scopes_;
  int num_scopes_ = 0;
};

}  // namespace

int BitsOfType(Type type) {
  switch (type) {
    case Type::kPred: return 1;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
    case Type::kE4m3: return 8;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kE4m3x2: return 16;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64: return 64;
    default: return 32;
  }
}

bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

void ReadFile(const std::string& path, Program& program) {
  Reader(path, program).Read();
}

std::string Demangled(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  free(text);
  return name;
}

}  // namespace sluice::ptx
