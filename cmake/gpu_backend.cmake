# Chooses the GPU backend: CUDA when nvcc is there (or asked for), HIP when asked for, none otherwise.
# Sets RAGGEDMLA_GPU to CUDA, HIP or NONE and defines raggedmla_gpu_sources(file...) for the rooms.
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
  find_package(CUDAToolkit REQUIRED)
  set_target_properties(raggedmla PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_ARCHITECTURES "${RAGGEDMLA_CUDA_ARCHITECTURES}"
    CUDA_RUNTIME_LIBRARY Static)
  target_compile_definitions(raggedmla PRIVATE RAGGEDMLA_WITH_CUDA=1)
  target_compile_options(raggedmla PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-fPIC -lineinfo>)
  target_link_libraries(raggedmla PRIVATE CUDA::cudart_static)
elseif(RAGGEDMLA_GPU STREQUAL "HIP")
  include(hip)
endif()

# Adds GPU sources (.cu) of the current room to the library, compiled for the chosen backend.
function(raggedmla_gpu_sources)
  if(RAGGEDMLA_GPU STREQUAL "CUDA")
    target_sources(raggedmla PRIVATE ${ARGN})
  elseif(RAGGEDMLA_GPU STREQUAL "HIP")
    raggedmla_hip_sources(${ARGN})
  endif()
endfunction()
