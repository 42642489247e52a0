# xgrammar, the engine behind src/constraints, as a static library: its C++ without its Python parts. Its source archive is
# fetched once for all builds of this checkout (tools/xgrammar_source.sh). Only the folder src/constraints links to it.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/requirements-xgrammar.txt pinned REGEX "^xgrammar==")
string(REGEX REPLACE "^xgrammar==([^ ]+).*" "\\1" xgrammar_version "${pinned}")
set(SLUICE_XGRAMMAR_SOURCE ${CMAKE_SOURCE_DIR}/build/sources/xgrammar-${xgrammar_version} CACHE PATH
    "The unpacked source archive of xgrammar; fetched where it is not there")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/requirements-xgrammar.txt)
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/xgrammar_source.sh ${SLUICE_XGRAMMAR_SOURCE} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "xgrammar ${xgrammar_version}: no source in ${SLUICE_XGRAMMAR_SOURCE}, and it cannot be fetched (see above)")
endif()

file(GLOB_RECURSE xgrammar_sources ${SLUICE_XGRAMMAR_SOURCE}/cpp/*.cc)
# Without the bindings of Python and the logging that src/constraints/xgrammar_logging.h stands in for.
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/(tvm_ffi/.*|support/logging\\.cc)$")
add_library(xgrammar STATIC ${xgrammar_sources})
target_include_directories(xgrammar SYSTEM PUBLIC ${SLUICE_XGRAMMAR_SOURCE}/include
                           ${SLUICE_XGRAMMAR_SOURCE}/3rdparty/dlpack/include)
target_include_directories(xgrammar SYSTEM PRIVATE ${SLUICE_XGRAMMAR_SOURCE}/3rdparty/picojson)
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 EXPORT_COMPILE_COMMANDS OFF OUTPUT_NAME sluice_xgrammar)
# It reads what strangers send.
target_link_libraries(xgrammar PRIVATE sluice_hardening)
target_compile_options(xgrammar PRIVATE -w -include ${CMAKE_SOURCE_DIR}/src/constraints/xgrammar_logging.h)
# Its address arithmetic is not ours to mend: the sanitizer of undefined behaviour leaves it out.
if(SLUICE_SANITIZE MATCHES "address")
  target_compile_options(xgrammar PRIVATE -fsanitize=address -fno-omit-frame-pointer)
elseif(SLUICE_SANITIZE)
  target_compile_options(xgrammar PRIVATE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
endif()
# Most of its time to compile is in what reads a constraint, once; what runs in every step stays at -O2. Under a sanitizer
# the readers have no optimisation at all, which takes a third off.
target_compile_options(xgrammar PRIVATE $<$<CONFIG:Release>:-O2>)
if(SLUICE_SANITIZE)
  set(reader_options -O0)
else()
  set(reader_options $<$<CONFIG:Release>:-O1>)
endif()
set_source_files_properties(
  ${SLUICE_XGRAMMAR_SOURCE}/cpp/json_schema_converter.cc ${SLUICE_XGRAMMAR_SOURCE}/cpp/lark_converter.cc
  ${SLUICE_XGRAMMAR_SOURCE}/cpp/structural_tag.cc ${SLUICE_XGRAMMAR_SOURCE}/cpp/grammar_parser.cc
  ${SLUICE_XGRAMMAR_SOURCE}/cpp/regex_converter.cc ${SLUICE_XGRAMMAR_SOURCE}/cpp/converter_ext/cohere.cc
  ${SLUICE_XGRAMMAR_SOURCE}/cpp/converter_ext/minimax_m3.cc
  PROPERTIES COMPILE_OPTIONS "${reader_options}")
install(FILES ${SLUICE_XGRAMMAR_SOURCE}/LICENSE DESTINATION licenses RENAME xgrammar.txt)
install(FILES ${SLUICE_XGRAMMAR_SOURCE}/NOTICE DESTINATION licenses RENAME xgrammar-notice.txt)
