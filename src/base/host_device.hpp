// Marks functions that are compiled for the host and, by nvcc or hipcc, for the device as well.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(__HIP__)
#define RAGGEDMLA_HOST_DEVICE __host__ __device__
#else
#define RAGGEDMLA_HOST_DEVICE
#endif
