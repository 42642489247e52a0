# sluice_folder(NAME [DEPS targets ...] [TEST_DEPS targets ...] [CUDA_SOURCES x.cc ...] [CUDA_AWARE y.cc ...]
#               [APART sub-folders ...])
#
# Declares the library of one folder of src/. `*.cc` of the folder and its sub-folders make the static library
# sluice_NAME; `*_test.cc` make the program NAME_test, run by ctest under the folder's name; `*_benchmark.cc` make
# NAME_benchmark (not built by default); with SLUICE_FUZZ, each `X_fuzz.cc` makes X_fuzz. CUDA_SOURCES need CUDA's
# headers and are left out without SLUICE_CUDA. Only CUDA_SOURCES and CUDA_AWARE sources see the macro SLUICE_CUDA.
# Library sources in the sub-folders APART are not part of the library; the caller compiles them.
#
# The library's sources are compiled SLUICE_UNITY_BATCH at a time, tests eight at a time (SLUICE_UNITY): most of the
# compile time goes into headers that all of them include. So names in anonymous namespaces must be unique within a
# folder.
function(sluice_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;TEST_DEPS;CUDA_SOURCES;CUDA_AWARE;APART" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  set(benchmarks ${sources})
  foreach(subfolder ${ARG_APART})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${subfolder}/")
  endforeach()
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benchmarks INCLUDE REGEX "_benchmark\\.cc$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|testing|benchmark|fuzz|main)\\.cc$")
  list(TRANSFORM ARG_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM ARG_CUDA_AWARE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(REMOVE_ITEM sources "" ${ARG_CUDA_SOURCES})

  set(others ${ARG_DEPS})
  list(FILTER others EXCLUDE REGEX "^sluice_")
  set_property(GLOBAL APPEND PROPERTY SLUICE_OTHER_LIBRARIES ${others})

  set(library sluice_${name})
  if(SLUICE_CUDA AND (ARG_CUDA_SOURCES OR ARG_CUDA_AWARE))
    list(REMOVE_ITEM sources ${ARG_CUDA_AWARE})
    add_library(${library}_cuda OBJECT ${ARG_CUDA_SOURCES} ${ARG_CUDA_AWARE})
    target_link_libraries(${library}_cuda PRIVATE sluice_flags sluice_hardening sluice_cuda_runtime ${ARG_DEPS})
    set_property(GLOBAL APPEND PROPERTY SLUICE_CUDA_OBJECTS $<TARGET_OBJECTS:${library}_cuda>)
    list(APPEND sources $<TARGET_OBJECTS:${library}_cuda>)
  endif()
  if(sources)
    add_library(${library} STATIC ${sources})
    target_link_libraries(${library} PUBLIC sluice_flags ${ARG_DEPS} PRIVATE sluice_hardening)
    set_target_properties(${library} PROPERTIES UNITY_BUILD ${SLUICE_UNITY} UNITY_BUILD_BATCH_SIZE ${SLUICE_UNITY_BATCH})
    # The CUDA build replaces the object files of these sources one by one (src/cli), so none is part of a unity
    # batch.
    set_source_files_properties(${ARG_CUDA_SOURCES} ${ARG_CUDA_AWARE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    # Code of these folders has little influence on speed; a lower optimisation level saves compile time.
    if(name MATCHES "^(chat|checkpoint|cli|eval|hub|options|planner|recipe|selftest)$")
      target_compile_options(${library} PRIVATE $<$<CONFIG:Release>:-O1>)
    elseif(NOT name MATCHES "^(kernels|sampler|tensor|tokenizer)$")
      target_compile_options(${library} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    if(SLUICE_CUDA AND (ARG_CUDA_SOURCES OR ARG_CUDA_AWARE))
      target_link_libraries(${library} PRIVATE sluice_cuda_runtime)
    endif()
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE sluice_flags ${ARG_DEPS})
  endif()
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${library} ${ARG_TEST_DEPS} sluice_source_path GTest::gmock GTest::gtest GTest::gtest_main)
    if(NOT name STREQUAL "kernels")  # some of its tests define CUDA's names as macros
      set_target_properties(${name}_test PROPERTIES UNITY_BUILD ${SLUICE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
    endif()
    # Tests are half of a build's work, so a low optimisation level lets them compile fast. Under a sanitizer most
    # get no optimisation, except in folders whose tests compute much themselves.
    if(SLUICE_SANITIZE AND NOT name MATCHES "^(kernels|models|tensor|sampler)$")
      target_compile_options(${name}_test PRIVATE -O0)
    else()
      target_compile_options(${name}_test PRIVATE -O1)
    endif()
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
  if(SLUICE_FUZZ)
    foreach(source ${fuzzers})
      get_filename_component(fuzzer ${source} NAME_WE)
      add_executable(${fuzzer} EXCLUDE_FROM_ALL ${source})
      target_link_libraries(${fuzzer} PRIVATE ${library})
      target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${fuzzer})
    endforeach()
  endif()
  if(benchmarks)
    add_executable(${name}_benchmark EXCLUDE_FROM_ALL ${benchmarks})
    target_link_libraries(${name}_benchmark PRIVATE ${library} benchmark::benchmark_main)
  endif()
endfunction()
