#include "code_object.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace fake_hip {
namespace {

constexpr uint16_t kAmdGpu = 224;
constexpr uint32_t kMetadataNote = 32;

// Reads MessagePack. It keeps only the content of the kernels' maps.
class Metadata {
 public:
  Metadata(const unsigned char* begin, size_t bytes) : at_(begin), end_(begin + bytes) {}

  // Reads the whole note. Returns false if it is truncated or has a type that notes do not have.
  bool Read(std::map<std::string, CodeKernel>& kernels) {
    return Map([&](const std::string& key) {
      if (key != "amdhsa.kernels") return Skip();
      return Array([&] { return ReadKernel(kernels); });
    });
  }

 private:
  bool ReadKernel(std::map<std::string, CodeKernel>& kernels) {
    std::string name;
    CodeKernel kernel;
    const bool is_read = Map([&](const std::string& key) {
      if (key == ".name") return Text(name);
      if (key == ".max_flat_workgroup_size") return Number(kernel.most_threads);
      if (key == ".group_segment_fixed_size") return Number(kernel.shared_bytes);
      if (key == ".wavefront_size") return Number(kernel.wave_lanes);
      if (key != ".args") return Skip();
      return Array([&] {
        unsigned offset = 0, bytes = 0;
        std::string kind;
        const bool is_argument = Map([&](const std::string& field) {
          if (field == ".offset") return Number(offset);
          if (field == ".size") return Number(bytes);
          if (field == ".value_kind") return Text(kind);
          return Skip();
        });
        if (kind.starts_with("hidden_")) return is_argument;
        ++kernel.num_args;
        kernel.args_bytes = size_t{offset} + bytes;
        return is_argument;
      });
    });
    kernels[name] = kernel;
    return is_read;
  }

  template <typename Entry>
  bool Map(const Entry& entry) {
    uint64_t count = 0;
    if (!Count(0x80, 0xDE, count)) return false;
    for (; count > 0; --count) {
      std::string key;
      if (!Text(key) || !entry(key)) return false;
    }
    return true;
  }
  template <typename Entry>
  bool Array(const Entry& entry) {
    uint64_t count = 0;
    if (!Count(0x90, 0xDC, count)) return false;
    for (; count > 0; --count) {
      if (!entry()) return false;
    }
    return true;
  }
  // Reads the size of a map or an array, in the short form or in the forms of 16 or 32 bits.
  bool Count(unsigned small, unsigned wide, uint64_t& count) {
    if (at_ == end_) return false;
    const unsigned type = *at_++;
    if ((type & 0xF0u) == small) {
      count = type & 0xFu;
      return true;
    }
    if (type == wide) return Big(2, count);
    return type == wide + 1 && Big(4, count);
  }
  bool Big(int bytes, uint64_t& value) {
    if (end_ - at_ < bytes) return false;
    value = 0;
    for (; bytes > 0; --bytes) value = value << 8 | *at_++;
    return true;
  }
  bool Text(std::string& text) {
    if (at_ == end_) return false;
    const unsigned type = *at_++;
    uint64_t bytes = type & 0x1Fu;
    if (type >= 0xD9 && type <= 0xDB) {
      if (!Big(1 << (type - 0xD9), bytes)) return false;
    } else if ((type & 0xE0u) != 0xA0) {
      return false;
    }
    if (static_cast<uint64_t>(end_ - at_) < bytes) return false;
    text.assign(reinterpret_cast<const char*>(at_), bytes);
    at_ += bytes;
    return true;
  }
  bool Number(unsigned& number) {
    if (at_ == end_) return false;
    const unsigned type = *at_++;
    uint64_t value = type;
    if (type >= 0xCC && type <= 0xCF) {
      if (!Big(1 << (type - 0xCC), value)) return false;
    } else if (type > 0x7F) {
      return false;
    }
    number = static_cast<unsigned>(value);
    return true;
  }
  bool Skip() {
    if (at_ == end_) return false;
    const unsigned type = *at_;
    uint64_t ignored = 0;
    unsigned number = 0;
    std::string text;
    if ((type & 0xF0u) == 0x80 || type == 0xDE || type == 0xDF)
      return Map([&](const std::string&) { return Skip(); });
    if ((type & 0xF0u) == 0x90 || type == 0xDC || type == 0xDD)
      return Array([&] { return Skip(); });
    if ((type & 0xE0u) == 0xA0 || (type >= 0xD9 && type <= 0xDB)) return Text(text);
    if (type == 0xC0 || type == 0xC2 || type == 0xC3 || type >= 0xE0) return ++at_, true;
    if (type >= 0xD0 && type <= 0xD3) return ++at_, Big(1 << (type - 0xD0), ignored);
    return Number(number);
  }

  const unsigned char* at_;
  const unsigned char* end_;
};

}  // namespace

CodeObject ReadCodeObject(const void* image) {
  CodeObject object;
  const auto* file = static_cast<const unsigned char*>(image);
  Elf64_Ehdr header;
  memcpy(&header, file, sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != kAmdGpu) {
    object.fault = "no ELF file for AMD GPUs";
    return object;
  }
  object.machine = header.e_flags & 0xFFu;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  memcpy(sections.data(), file + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  bool has_note = false;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_DYNSYM) {
      const unsigned char* names = file + sections[section.sh_link].sh_offset;
      for (size_t i = 1; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        Elf64_Sym symbol;
        memcpy(&symbol, file + section.sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (symbol.st_shndx == SHN_UNDEF)
          object.undefined.emplace_back(reinterpret_cast<const char*>(names + symbol.st_name));
      }
    }
    if (section.sh_type != SHT_NOTE) continue;
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= section.sh_size;) {
      Elf64_Nhdr note;
      const unsigned char* from = file + section.sh_offset + at;
      memcpy(&note, from, sizeof(note));
      const size_t name_bytes = (note.n_namesz + 3u) / 4 * 4;
      if (note.n_type == kMetadataNote) {
        has_note = true;
        if (!Metadata(from + sizeof(note) + name_bytes, note.n_descsz).Read(object.kernels))
          object.fault = "its note of kernels cannot be read";
      }
      at += sizeof(note) + name_bytes + (note.n_descsz + 3u) / 4 * 4;
    }
  }
  if (!has_note) object.fault = "it has no note of kernels";
  return object;
}

std::map<std::string, const void*> OwnFunctions() {
  std::map<std::string, const void*> functions;
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&OwnFunctions), &own) == 0) return functions;
  std::ifstream in(own.dli_fname, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  Elf64_Ehdr header;
  if (file.size() < sizeof(header)) return functions;
  memcpy(&header, file.data(), sizeof(header));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  memcpy(sections.data(), file.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = file.data() + sections[section.sh_link].sh_offset;
    for (size_t i = 1; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      Elf64_Sym symbol;
      memcpy(&symbol, file.data() + section.sh_offset + i * sizeof(symbol), sizeof(symbol));
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0)
        functions[names + symbol.st_name] =
            static_cast<const char*>(own.dli_fbase) + symbol.st_value;
    }
  }
  return functions;
}

}  // namespace fake_hip
