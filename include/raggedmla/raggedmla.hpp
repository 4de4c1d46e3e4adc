// RaggedMLA: sparse attention of DeepSeek-V4 inference. This header is the whole C++ API.
#pragma once

#include "raggedmla/attention.hpp"
#include "raggedmla/device.hpp"
#include "raggedmla/error.hpp"
#include "raggedmla/kv_cache.hpp"
#include "raggedmla/row_lists.hpp"
#include "raggedmla/tensor.hpp"
