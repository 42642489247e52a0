# Writes OUTPUT, a C++ source that defines DialectFiles() with the texts of FILES.
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND rows "    {\"${name}\", R\"TEXT(${text})TEXT\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"options/dialect_table.h\"

namespace sluice::options {

std::span<const DialectFile> DialectFiles() {
  static constexpr DialectFile kFiles[] = {
${rows}  };
  return kFiles;
}

}  // namespace sluice::options
")
