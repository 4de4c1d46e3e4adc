# Chooses the GPU backend: CUDA when nvcc is there (or asked for), HIP when asked for, none otherwise.
# Sets RAGGEDMLA_GPU to CUDA, HIP or NONE and RAGGEDMLA_GPU_IMAGES to the architectures built in, and defines
# raggedmla_gpu_target(target) for whatever uses the GPU's runtime and raggedmla_gpu_sources(file...) for the rooms.
set(RAGGEDMLA_GPU NONE)
if(RAGGEDMLA_HIP)
  set(RAGGEDMLA_GPU HIP)
elseif(NOT RAGGEDMLA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(RAGGEDMLA_GPU CUDA)
  elseif(RAGGEDMLA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RAGGEDMLA_CUDA=ON, but no CUDA compiler was found (set CMAKE_CUDA_COMPILER or CUDACXX)")
  endif()
endif()
message(STATUS "RaggedMLA GPU backend: ${RAGGEDMLA_GPU}")

if(RAGGEDMLA_GPU STREQUAL "CUDA")
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc takes C++20.
  foreach(kind IN ITEMS STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()
  find_package(CUDAToolkit REQUIRED)
  # 80-real -> sm_80, 80-virtual -> compute_80, 80 -> both: what build_info() and error messages name.
  set(RAGGEDMLA_GPU_IMAGES)
  foreach(architecture IN LISTS RAGGEDMLA_CUDA_ARCHITECTURES)
    string(REGEX REPLACE "-.*" "" number "${architecture}")
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND RAGGEDMLA_GPU_IMAGES "sm_${number}")
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND RAGGEDMLA_GPU_IMAGES "compute_${number}")
    endif()
  endforeach()
elseif(RAGGEDMLA_GPU STREQUAL "HIP")
  include(hip)
  set(RAGGEDMLA_GPU_IMAGES ${RAGGEDMLA_HIP_ARCHITECTURES})
endif()

# A target whose sources include gpu/runtime.hpp (host C++ or .cu).
function(raggedmla_gpu_target target)
  if(RAGGEDMLA_GPU STREQUAL "CUDA")
    set_target_properties(${target} PROPERTIES
      CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_ARCHITECTURES "${RAGGEDMLA_CUDA_ARCHITECTURES}"
      CUDA_RUNTIME_LIBRARY Static)
    target_compile_definitions(${target} PRIVATE RAGGEDMLA_WITH_CUDA=1)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-fPIC -lineinfo>)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  elseif(RAGGEDMLA_GPU STREQUAL "HIP")
    target_compile_definitions(${target} PRIVATE RAGGEDMLA_WITH_HIP=1 __HIP_PLATFORM_AMD__=1)
    if(NOT RAGGEDMLA_HIP_INCLUDE STREQUAL "/usr/include")
      target_include_directories(${target} SYSTEM PRIVATE ${RAGGEDMLA_HIP_INCLUDE})
    endif()
    target_link_libraries(${target} PRIVATE ${RAGGEDMLA_HIP_RUNTIME})
  endif()
endfunction()

# Adds GPU sources (.cu) of the current room to the library, compiled for the chosen backend.
function(raggedmla_gpu_sources)
  if(RAGGEDMLA_GPU STREQUAL "CUDA")
    target_sources(raggedmla PRIVATE ${ARGN})
  elseif(RAGGEDMLA_GPU STREQUAL "HIP")
    raggedmla_hip_sources(${ARGN})
  endif()
endfunction()
