# Clang and LLD for the kernels of AMD GPUs, if SLUICE_HIP is on. Neither ROCm's headers nor its libraries are needed:
# the program opens HIP's runtime when it starts (src/device/hip_library.h).
set(SLUICE_HIP_ARCHITECTURES "gfx942;gfx950" CACHE STRING "AMD GPUs to compile kernels for; one of them halves the time of a build")

# sluice_hip_objects(OUT kernel.cu ...): sets OUT to an object file for each file of kernels. It holds the launchers and,
# for each architecture, the machine code, which Clang's code registers before main (src/device/hip_modules.cc).
function(sluice_hip_objects out)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(tool ${CMAKE_SOURCE_DIR}/tools/hip_kernels.sh)
  set(folder ${CMAKE_BINARY_DIR}/hip)
  file(MAKE_DIRECTORY ${folder})
  set(objects)
  foreach(kernel ${ARGN})
    get_filename_component(name ${kernel} NAME_WE)
    set(codes)
    set(parts)
    foreach(architecture ${SLUICE_HIP_ARCHITECTURES})
      set(code ${folder}/${name}.${architecture}.co)
      add_custom_command(OUTPUT ${code} COMMAND ${tool} --code ${architecture} ${kernel} ${code} ${code}.d
                         DEPENDS ${kernel} ${tool} DEPFILE ${code}.d COMMENT "Compiling ${name}.cu for ${architecture}" VERBATIM)
      list(APPEND codes ${code})
      list(APPEND parts ${architecture}=${code})
    endforeach()
    set(object ${folder}/${name}.o)
    add_custom_command(OUTPUT ${object}
                       COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/hip_bundle.py ${object}.bundle ${parts}
                       COMMAND ${tool} --host ${kernel} ${object}.bundle ${object} ${object}.d
                       DEPENDS ${codes} ${kernel} ${tool} ${CMAKE_SOURCE_DIR}/tools/hip_bundle.py DEPFILE ${object}.d
                       COMMENT "Compiling the launchers of ${name}.cu" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
