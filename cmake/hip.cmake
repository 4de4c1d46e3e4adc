# The HIP backend without CMake's HIP language: clang++ is called directly, for every row of the table below.
#
# Two kinds of installation are served: a ROCm tree (ROCM_PATH or /opt/rocm, with its own clang and device libraries)
# and Debian's packages (clang-19, clang-tools-19, lld-19, hipcc, libamdhip64-dev, rocm-device-libs).
# Code objects made here are compiled and inspected, not run on AMD hardware.

# architecture, value of __oclc_ISA_version, oldest clang major that knows it
set(RAGGEDMLA_HIP_TARGETS
  "gfx90a 9010 14"   # MI200
  "gfx942 9402 17"   # MI300
  "gfx950 9500 20")  # MI350: needs a newer clang than Debian 12 has

if(DEFINED ENV{ROCM_PATH})
  set(rocm $ENV{ROCM_PATH})
elseif(EXISTS /opt/rocm/llvm/bin/clang++)
  set(rocm /opt/rocm)
else()
  set(rocm /usr)
endif()
set(RAGGEDMLA_ROCM_PATH ${rocm} CACHE PATH "Root of the ROCm installation")

find_program(RAGGEDMLA_HIP_COMPILER NAMES clang++ clang++-19 HINTS ${RAGGEDMLA_ROCM_PATH}/llvm/bin
  NO_DEFAULT_PATH DOC "clang++ that compiles HIP")
find_program(RAGGEDMLA_HIP_COMPILER NAMES clang++-19 REQUIRED)
find_library(RAGGEDMLA_HIP_RUNTIME amdhip64 HINTS ${RAGGEDMLA_ROCM_PATH}/lib REQUIRED)
find_path(RAGGEDMLA_HIP_INCLUDE hip/hip_runtime.h HINTS ${RAGGEDMLA_ROCM_PATH}/include REQUIRED)
find_path(RAGGEDMLA_HIP_BITCODE ocml.bc REQUIRED HINTS ${RAGGEDMLA_ROCM_PATH}/amdgcn/bitcode
  ${RAGGEDMLA_ROCM_PATH}/lib/${CMAKE_LIBRARY_ARCHITECTURE}/amdgcn/bitcode)

# A device-library folder that holds the constant of every wanted architecture. Debian's lacks gfx942, and the
# file only holds a number: the folder is linked into the build tree and what is missing is compiled.
set(bitcode ${PROJECT_BINARY_DIR}/hip-bitcode)
file(MAKE_DIRECTORY ${bitcode})
file(GLOB shipped ${RAGGEDMLA_HIP_BITCODE}/*.bc)
foreach(file IN LISTS shipped)
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${bitcode}/${name} SYMBOLIC)
endforeach()

set(RAGGEDMLA_HIP_FLAGS -x hip --rocm-path=${RAGGEDMLA_ROCM_PATH} --rocm-device-lib-path=${bitcode})
foreach(architecture IN LISTS RAGGEDMLA_HIP_ARCHITECTURES)
  set(row ${RAGGEDMLA_HIP_TARGETS})
  list(FILTER row INCLUDE REGEX "^${architecture} ")
  if(NOT row)
    message(FATAL_ERROR "RAGGEDMLA_HIP_ARCHITECTURES: ${architecture} is not in the table of cmake/hip.cmake")
  endif()
  string(REPLACE " " ";" row ${row})
  list(GET row 1 isa_version)
  string(REPLACE gfx "" short ${architecture})
  set(constant ${bitcode}/oclc_isa_version_${short}.bc)
  if(NOT EXISTS ${constant})
    file(WRITE ${bitcode}/isa_${short}.cl
      "__attribute__((visibility(\"hidden\"))) extern constant int __oclc_ISA_version = ${isa_version};\n")
    string(REGEX REPLACE "clang\\+\\+" "clang" clang_c ${RAGGEDMLA_HIP_COMPILER})
    execute_process(COMMAND ${clang_c} -Wno-extern-initializer -x cl -target amdgcn-amd-amdhsa -mcpu=${architecture} -nogpulib
      -Xclang -finclude-default-header -emit-llvm -c ${bitcode}/isa_${short}.cl -o ${constant}
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
  list(APPEND RAGGEDMLA_HIP_FLAGS --offload-arch=${architecture})
endforeach()
message(STATUS "RaggedMLA HIP: ${RAGGEDMLA_HIP_COMPILER} for ${RAGGEDMLA_HIP_ARCHITECTURES}")

# Compiles .cu files of the current folder with clang and adds the objects (host code with the code objects of all
# architectures inside) to the library. Their paths are collected in the target property RAGGEDMLA_HIP_OBJECTS for the
# inspection test.
function(raggedmla_hip_sources)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
  separate_arguments(build_type_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS_${configuration}}")
  set(warnings -Wall -Wextra $<$<BOOL:${RAGGEDMLA_WERROR}>:-Werror>)
  foreach(source IN LISTS ARGN)
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src ${source})
    set(object ${PROJECT_BINARY_DIR}/hip-objects/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${RAGGEDMLA_HIP_COMPILER} ${RAGGEDMLA_HIP_FLAGS} -std=c++20 ${build_type_flags}
        ${warnings} -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -DRAGGEDMLA_WITH_HIP=1
        -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src -I${RAGGEDMLA_HIP_INCLUDE}
        -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Building HIP object ${name}.o")
    # The command belongs to this folder, the library to another: only a target carries the rule across.
    string(MAKE_C_IDENTIFIER hip_${name} rule)
    add_custom_target(${rule} DEPENDS ${object})
    add_dependencies(raggedmla ${rule})
    target_sources(raggedmla PRIVATE ${object})
    set_source_files_properties(${object} TARGET_DIRECTORY raggedmla PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    set_property(TARGET raggedmla APPEND PROPERTY RAGGEDMLA_HIP_OBJECTS ${object})
  endforeach()
endfunction()
