# xgrammar, the library that implements src/constraints, as a static library: its C++ without its Python parts. The
# source archive is fetched once for all builds of this checkout (tools/xgrammar_source.sh). Only src/constraints links
# to it.
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
# Without the Python bindings, and without the logging, which src/constraints/xgrammar_logging.h replaces.
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/(tvm_ffi/.*|support/logging\\.cc)$")
# Most of its compile time goes into the readers, which parse a constraint once; code that runs in every step stays at
# -O2. Under a sanitizer the readers are not optimised, which saves a third. Both are compiled in batches
# (SLUICE_UNITY).
set(readers ${xgrammar_sources})
list(FILTER readers INCLUDE REGEX "/cpp/(converter_ext/.*|json_schema_converter|lark_converter|structural_tag|grammar_parser|regex_converter)\\.cc$")
list(REMOVE_ITEM xgrammar_sources ${readers})
add_library(xgrammar_readers OBJECT ${readers})
add_library(xgrammar STATIC ${xgrammar_sources} $<TARGET_OBJECTS:xgrammar_readers>)
if(SLUICE_SANITIZE)
  target_compile_options(xgrammar_readers PRIVATE -O0)
else()
  target_compile_options(xgrammar_readers PRIVATE $<$<CONFIG:Release>:-O1>)
endif()
target_compile_options(xgrammar PRIVATE $<$<CONFIG:Release>:-O2>)
# minimax_m3.cc defines a name that json_schema_converter.cc also defines, so it cannot be in the same unity batch.
set_source_files_properties(${SLUICE_XGRAMMAR_SOURCE}/cpp/converter_ext/minimax_m3.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
foreach(library xgrammar xgrammar_readers)
  target_include_directories(${library} SYSTEM PUBLIC ${SLUICE_XGRAMMAR_SOURCE}/include
                             ${SLUICE_XGRAMMAR_SOURCE}/3rdparty/dlpack/include)
  target_include_directories(${library} SYSTEM PRIVATE ${SLUICE_XGRAMMAR_SOURCE}/3rdparty/picojson)
  target_include_directories(${library} PRIVATE ${CMAKE_SOURCE_DIR}/src) # for xgrammar_logging.h
  target_compile_definitions(${library} PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  set_target_properties(${library} PROPERTIES CXX_STANDARD 17 EXPORT_COMPILE_COMMANDS OFF
                        UNITY_BUILD ${SLUICE_UNITY} UNITY_BUILD_BATCH_SIZE 30)
  # xgrammar parses untrusted input.
  target_link_libraries(${library} PRIVATE sluice_hardening)
  target_compile_options(${library} PRIVATE -w -include ${CMAKE_SOURCE_DIR}/src/constraints/xgrammar_logging.h)
  # xgrammar's pointer arithmetic is third-party code with undefined behaviour, so that sanitizer is off for it.
  if(SLUICE_SANITIZE MATCHES "address")
    target_compile_options(${library} PRIVATE -fsanitize=address -fno-omit-frame-pointer)
  elseif(SLUICE_SANITIZE)
    target_compile_options(${library} PRIVATE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
  endif()
endforeach()
set_target_properties(xgrammar PROPERTIES OUTPUT_NAME sluice_xgrammar)
install(FILES ${SLUICE_XGRAMMAR_SOURCE}/LICENSE DESTINATION licenses RENAME xgrammar.txt)
install(FILES ${SLUICE_XGRAMMAR_SOURCE}/NOTICE DESTINATION licenses RENAME xgrammar-notice.txt)
