/**
 * @file
 * RaggedMLA's C ABI: every operator of the C++ headers (which define what each computes), for C and other languages.
 *
 * Conventions
 * - Every function returns a status. After a failure raggedmla_last_error() has the message; nothing was launched and
 *   nothing was written. No exception crosses this boundary.
 * - Every structure that is passed by pointer begins with `struct_size`, which the caller sets to the structure's
 *   size; the *_INIT macros do so and fill in the defaults. Structures only ever grow at the end. A caller compiled
 *   against an older header passes a smaller size and gets the defaults for what it does not know; a caller compiled
 *   against a newer header may pass a larger one as long as the unknown tail is zero.
 * - An optional argument is a pointer that may be NULL.
 * - An operator enqueues its work on `stream` (a cudaStream_t or hipStream_t, NULL = default stream) and returns. On
 *   the CPU the work is done when it returns. Nothing given to a call is kept, except that tensors must live until the
 *   enqueued work is done.
 */
#ifndef RAGGEDMLA_RAGGEDMLA_H
#define RAGGEDMLA_RAGGEDMLA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RAGGEDMLA_EXPORT __attribute__((visibility("default"))) /**< the only symbols the shared library exports */
#else
#define RAGGEDMLA_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

/** What a call came to. */
typedef int32_t raggedmla_status;
enum {
  RAGGEDMLA_OK = 0,
  RAGGEDMLA_INVALID_ARGUMENT = 1, /**< a wrong shape, type, device, alignment, structure or too little scratch */
  RAGGEDMLA_DEVICE_ERROR = 2,     /**< no such device, no kernel image for it, a failed launch */
  RAGGEDMLA_OUT_OF_MEMORY = 3,    /**< the host had no memory for the call's bookkeeping */
  RAGGEDMLA_INTERNAL = 4          /**< a defect of the library */
};

/** Message of the calling thread's last failed call, "" if there was none. Valid until the thread's next call. */
RAGGEDMLA_EXPORT const char* raggedmla_last_error(void);

/** "0.1.0". */
RAGGEDMLA_EXPORT const char* raggedmla_version(void);

/* ---- tensors, scratch -------------------------------------------------------------------------------------------- */

/** Element type. U8 holds packed cache pages; BOOLEAN is one byte, zero or not. */
typedef int32_t raggedmla_data_type;
enum {
  RAGGEDMLA_F32 = 0,
  RAGGEDMLA_BF16 = 1,
  RAGGEDMLA_U8 = 2,
  RAGGEDMLA_I32 = 3,
  RAGGEDMLA_I64 = 4,
  RAGGEDMLA_BOOLEAN = 5
};

/** Kind of device. */
typedef int32_t raggedmla_device_type;
enum { RAGGEDMLA_CPU = 0, RAGGEDMLA_CUDA = 1, RAGGEDMLA_HIP = 2 };

/** Most dimensions of a tensor. */
enum { RAGGEDMLA_MAX_RANK = 4 };

/** A strided view of the caller's memory. Strides count elements. */
typedef struct raggedmla_tensor {
  size_t struct_size;
  void* data; /**< may be NULL when the tensor has no elements */
  raggedmla_data_type dtype;
  raggedmla_device_type device_type;
  int32_t device_index;
  int32_t rank;
  int64_t shape[RAGGEDMLA_MAX_RANK];
  int64_t stride[RAGGEDMLA_MAX_RANK];
} raggedmla_tensor;

/** A packed (row-major) view of `rank` dimensions. */
static inline raggedmla_tensor raggedmla_packed(void* data, raggedmla_data_type dtype,
                                                raggedmla_device_type device_type, int32_t device_index, int32_t rank,
                                                const int64_t* shape) {
  raggedmla_tensor view = {sizeof(raggedmla_tensor), data, dtype, device_type, device_index, rank, {0}, {0}};
  int64_t stride = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    if (i >= RAGGEDMLA_MAX_RANK) continue;
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  return view;
}

/** Scratch memory of the caller, aligned to 256 bytes. See raggedmla_initialize_workspace. */
typedef struct raggedmla_workspace {
  size_t struct_size;
  void* data;
  size_t bytes;
  raggedmla_device_type device_type;
  int32_t device_index;
} raggedmla_workspace;
/** Defaults of raggedmla_workspace. */
#define RAGGEDMLA_WORKSPACE_INIT \
  { sizeof(raggedmla_workspace), NULL, 0, RAGGEDMLA_CPU, 0 }

/** Zeroes the counter area of a workspace, once when its memory was allocated. Every operator leaves it zero. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_initialize_workspace(const raggedmla_workspace* workspace, void* stream);

/* ---- build and devices ------------------------------------------------------------------------------------------- */

/** What this build holds. The strings live as long as the process; lists are separated by single spaces. */
typedef struct raggedmla_build_info {
  size_t struct_size;
  const char* version;
  const char* backends;             /**< "reference cpu cuda" */
  const char* cpu_instruction_sets; /**< "portable avx2 avx512 avx512bf16 amx" */
  const char* gpu_architectures;    /**< "sm_80 sm_90a compute_80", "" without a GPU backend */
} raggedmla_build_info;
/** Fills in `info`, whose struct_size the caller has set. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_get_build_info(raggedmla_build_info* info);

/** A device of this machine. */
typedef struct raggedmla_device_info {
  size_t struct_size;
  raggedmla_device_type device_type;
  int32_t device_index;
  char name[128];          /**< "NVIDIA H200", or the processor's model name */
  char architecture[32];   /**< "sm_90", "gfx942", or the CPU instruction set in use */
  int32_t multiprocessors; /**< GPU multiprocessors, or CPU threads */
  int32_t supported;       /**< this build holds a kernel image for it */
  size_t memory_bytes;
} raggedmla_device_info;
/**
 * All devices, the CPU first. `*count` is set to their number; up to `capacity` of them are written to `infos`, whose
 * elements are `infos[0].struct_size` bytes apart. With capacity 0, `infos` may be NULL.
 */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_get_devices(raggedmla_device_info* infos, size_t capacity, size_t* count);

/** Loads every kernel of the device, so that a first call inside a capture is legal and fast. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_preload(raggedmla_device_type device_type, int32_t device_index);

/* ---- cache rows -------------------------------------------------------------------------------------------------- */

/** Encoding of fp8 channels. */
typedef int32_t raggedmla_fp8_encoding;
enum { RAGGEDMLA_FP8_OCP = 0, RAGGEDMLA_FP8_FNUZ = 1 };

/** Floor of a group's largest magnitude. */
typedef int32_t raggedmla_scale_floor;
enum { RAGGEDMLA_SCALE_FLOOR_AMAX = 0, RAGGEDMLA_SCALE_FLOOR_QUOTIENT = 1 };

/** Where rows lie. */
typedef int32_t raggedmla_kv_kind;
enum { RAGGEDMLA_KV_DENSE = 0, RAGGEDMLA_KV_PAGED = 1 };

/** C++: KvSource (DenseKv or PagedKv). */
typedef struct raggedmla_kv {
  size_t struct_size;
  raggedmla_kv_kind kind;
  int32_t rows_per_page;           /**< paged only */
  raggedmla_fp8_encoding encoding; /**< fp8 pages only */
  int32_t reserved;                /**< 0 */
  const raggedmla_tensor* rows;    /**< dense: the rows; paged: the pages */
} raggedmla_kv;
/** Defaults of raggedmla_kv: paged. */
#define RAGGEDMLA_KV_INIT \
  { sizeof(raggedmla_kv), RAGGEDMLA_KV_PAGED, 64, RAGGEDMLA_FP8_OCP, 0, NULL }

/** C++: QuantizeRows. */
typedef struct raggedmla_quantize_rows_args {
  size_t struct_size;
  const raggedmla_tensor* rows;
  const raggedmla_tensor* slots;
  const raggedmla_kv* cache; /**< paged */
  raggedmla_scale_floor floor;
  int32_t reserved; /**< 0 */
} raggedmla_quantize_rows_args;
/** Defaults of raggedmla_quantize_rows_args. */
#define RAGGEDMLA_QUANTIZE_ROWS_INIT \
  { sizeof(raggedmla_quantize_rows_args), NULL, NULL, NULL, RAGGEDMLA_SCALE_FLOOR_AMAX, 0 }
/** Quantises bf16 rows into pages at slots. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_quantize_rows(const raggedmla_quantize_rows_args* args, void* stream);

/** C++: DequantizeRows. */
typedef struct raggedmla_dequantize_rows_args {
  size_t struct_size;
  const raggedmla_kv* source;
  const raggedmla_tensor* slots;
  const raggedmla_tensor* out;
} raggedmla_dequantize_rows_args;
/** Defaults of raggedmla_dequantize_rows_args. */
#define RAGGEDMLA_DEQUANTIZE_ROWS_INIT \
  { sizeof(raggedmla_dequantize_rows_args), NULL, NULL, NULL }
/** Reads rows at slots as bf16. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_dequantize_rows(const raggedmla_dequantize_rows_args* args, void* stream);

/** C++: GatherRows. */
typedef struct raggedmla_gather_rows_args {
  size_t struct_size;
  const raggedmla_kv* source; /**< paged */
  const raggedmla_tensor* block_table;
  const raggedmla_tensor* first;
  const raggedmla_tensor* count;
  const raggedmla_tensor* out;
  int64_t out_offset;
} raggedmla_gather_rows_args;
/** Defaults of raggedmla_gather_rows_args. */
#define RAGGEDMLA_GATHER_ROWS_INIT \
  { sizeof(raggedmla_gather_rows_args), NULL, NULL, NULL, NULL, NULL, 0 }
/** Gathers a range of logical rows per request into a bf16 workspace. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_gather_rows(const raggedmla_gather_rows_args* args, void* stream);

/* ---- row lists --------------------------------------------------------------------------------------------------- */

/** The form of a list. */
typedef int32_t raggedmla_list_kind;
enum { RAGGEDMLA_LIST_RAGGED = 0, RAGGEDMLA_LIST_DENSE = 1, RAGGEDMLA_LIST_RANGE = 2 };

/** C++: RowSelection (RaggedRows, DenseRows or RangeRows). Fields of the other kinds are not read. */
typedef struct raggedmla_rows {
  size_t struct_size;
  raggedmla_list_kind kind;
  int32_t reserved;                    /**< 0 */
  const raggedmla_tensor* indices;     /**< ragged, dense */
  const raggedmla_tensor* indptr;      /**< ragged */
  const raggedmla_tensor* lengths;     /**< dense, optional */
  const raggedmla_tensor* first;       /**< range */
  const raggedmla_tensor* count;       /**< range */
  const raggedmla_tensor* query_start; /**< range */
  const raggedmla_tensor* block_table; /**< range: exactly one of block_table and row_base */
  const raggedmla_tensor* row_base;    /**< range */
  int64_t ring_rows;                   /**< range */
  int64_t max_queries_per_request;     /**< range, host hint, 0 = unknown */
} raggedmla_rows;
/** Defaults of raggedmla_rows: dense. */
#define RAGGEDMLA_ROWS_INIT \
  { sizeof(raggedmla_rows), RAGGEDMLA_LIST_DENSE, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/** How the place of queries is given. */
typedef int32_t raggedmla_query_layout_kind;
enum { RAGGEDMLA_QUERIES_BY_REQUEST = 0, RAGGEDMLA_QUERIES_BY_POSITION = 1 };

/** C++: QueryLayout (RequestQueries or PositionedQueries). */
typedef struct raggedmla_query_layout {
  size_t struct_size;
  raggedmla_query_layout_kind kind;
  int32_t reserved;                         /**< 0 */
  const raggedmla_tensor* query_start;      /**< by request */
  const raggedmla_tensor* sequence_lengths; /**< by request */
  const raggedmla_tensor* positions;        /**< by position */
  const raggedmla_tensor* request_of_query; /**< by position */
} raggedmla_query_layout;
/** Defaults of raggedmla_query_layout: by request. */
#define RAGGEDMLA_QUERY_LAYOUT_INIT \
  { sizeof(raggedmla_query_layout), RAGGEDMLA_QUERIES_BY_REQUEST, 0, NULL, NULL, NULL, NULL }

/** C++: DenseOutput, RaggedOutput or RangeOutput. Fields of the other kinds are not read. */
typedef struct raggedmla_list_output {
  size_t struct_size;
  raggedmla_list_kind kind;
  int32_t reserved;                /**< 0 */
  const raggedmla_tensor* indices; /**< ragged, dense */
  const raggedmla_tensor* indptr;  /**< ragged */
  const raggedmla_tensor* lengths; /**< ragged, dense; optional */
  const raggedmla_tensor* first;   /**< range */
  const raggedmla_tensor* count;   /**< range */
} raggedmla_list_output;
/** Defaults of raggedmla_list_output: dense. */
#define RAGGEDMLA_LIST_OUTPUT_INIT \
  { sizeof(raggedmla_list_output), RAGGEDMLA_LIST_DENSE, 0, NULL, NULL, NULL, NULL, NULL }

/** C++: BuildRagged. */
typedef struct raggedmla_build_ragged_args {
  size_t struct_size;
  const raggedmla_tensor* indices;
  const raggedmla_tensor* lengths;  /**< optional */
  const raggedmla_list_output* out; /**< ragged */
  int64_t row_limit;                /**< -1: none */
} raggedmla_build_ragged_args;
/** Defaults of raggedmla_build_ragged_args. */
#define RAGGEDMLA_BUILD_RAGGED_INIT \
  { sizeof(raggedmla_build_ragged_args), NULL, NULL, NULL, -1 }
/** Scratch that raggedmla_build_ragged needs. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_build_ragged_workspace_bytes(const raggedmla_build_ragged_args* args,
                                                                         size_t* bytes);
/** Packs a dense list into a CSR list. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_build_ragged(const raggedmla_build_ragged_args* args,
                                                         const raggedmla_workspace* workspace, void* stream);

/** C++: TranslateTopk. */
typedef struct raggedmla_translate_topk_args {
  size_t struct_size;
  const raggedmla_tensor* topk;
  const raggedmla_tensor* request_of_query;
  const raggedmla_tensor* block_table;
  int32_t rows_per_page;
  int32_t reserved;                 /**< 0 */
  int64_t pages;                    /**< -1: unknown */
  const raggedmla_tensor* valid;    /**< optional */
  const raggedmla_tensor* lengths;  /**< optional */
  const raggedmla_list_output* out; /**< dense or ragged */
} raggedmla_translate_topk_args;
/** Defaults of raggedmla_translate_topk_args. */
#define RAGGEDMLA_TRANSLATE_TOPK_INIT \
  { sizeof(raggedmla_translate_topk_args), NULL, NULL, NULL, 64, 0, -1, NULL, NULL, NULL }
/** Scratch that raggedmla_translate_topk needs. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_translate_topk_workspace_bytes(const raggedmla_translate_topk_args* args,
                                                                           size_t* bytes);
/** Turns a top-k result into slots through the block table. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_translate_topk(const raggedmla_translate_topk_args* args,
                                                           const raggedmla_workspace* workspace, void* stream);

/** C++: WindowRows. */
typedef struct raggedmla_window_rows_args {
  size_t struct_size;
  const raggedmla_query_layout* queries;
  int64_t query_count;
  int32_t window;
  int32_t causal; /**< 0 or 1 */
  int32_t rows_per_page;
  int32_t reserved;                    /**< 0 */
  const raggedmla_tensor* block_table; /**< optional */
  const raggedmla_tensor* valid;       /**< optional */
  int64_t width;
  const raggedmla_list_output* out;
} raggedmla_window_rows_args;
/** Defaults of raggedmla_window_rows_args. */
#define RAGGEDMLA_WINDOW_ROWS_INIT \
  { sizeof(raggedmla_window_rows_args), NULL, 0, 128, 1, 64, 0, NULL, NULL, 0, NULL }
/** Scratch that raggedmla_window_rows needs. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_window_rows_workspace_bytes(const raggedmla_window_rows_args* args,
                                                                        size_t* bytes);
/** Makes the sliding-window rows of every query. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_window_rows(const raggedmla_window_rows_args* args,
                                                        const raggedmla_workspace* workspace, void* stream);

/** C++: CompressedRows. */
typedef struct raggedmla_compressed_rows_args {
  size_t struct_size;
  const raggedmla_query_layout* queries;
  int64_t query_count;
  int32_t ratio;
  int32_t rows_per_page;
  const raggedmla_tensor* block_table; /**< optional */
  const raggedmla_tensor* valid;       /**< optional */
  int64_t width;
  const raggedmla_list_output* out;
} raggedmla_compressed_rows_args;
/** Defaults of raggedmla_compressed_rows_args. */
#define RAGGEDMLA_COMPRESSED_ROWS_INIT \
  { sizeof(raggedmla_compressed_rows_args), NULL, 0, 128, 2, NULL, NULL, 0, NULL }
/** Scratch that raggedmla_compressed_rows needs. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_compressed_rows_workspace_bytes(const raggedmla_compressed_rows_args* args,
                                                                            size_t* bytes);
/** Makes the visible compressed rows of every query. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_compressed_rows(const raggedmla_compressed_rows_args* args,
                                                            const raggedmla_workspace* workspace, void* stream);

/** C++: Combine. */
typedef struct raggedmla_combine_args {
  size_t struct_size;
  const raggedmla_tensor* topk;          /**< optional */
  const raggedmla_query_layout* queries; /**< by request */
  int64_t query_count;
  const raggedmla_tensor* gathered;
  int64_t rows_per_request;
  int64_t compressed_rows;
  int32_t ratio;
  int32_t window;
  const raggedmla_list_output* out; /**< dense or ragged */
} raggedmla_combine_args;
/** Defaults of raggedmla_combine_args. */
#define RAGGEDMLA_COMBINE_INIT \
  { sizeof(raggedmla_combine_args), NULL, NULL, 0, NULL, 0, 0, 4, 128, NULL }
/** Scratch that raggedmla_combine needs. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_combine_workspace_bytes(const raggedmla_combine_args* args, size_t* bytes);
/** Joins top-k and window rows into one list over a flat prefill workspace. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_combine(const raggedmla_combine_args* args,
                                                    const raggedmla_workspace* workspace, void* stream);

/** C++: CopyToGraphBuffers. */
typedef struct raggedmla_copy_to_graph_buffers_args {
  size_t struct_size;
  const raggedmla_tensor* source_indices;
  const raggedmla_tensor* source_indptr;
  const raggedmla_tensor* indices;
  const raggedmla_tensor* indptr;
} raggedmla_copy_to_graph_buffers_args;
/** Defaults of raggedmla_copy_to_graph_buffers_args. */
#define RAGGEDMLA_COPY_TO_GRAPH_BUFFERS_INIT \
  { sizeof(raggedmla_copy_to_graph_buffers_args), NULL, NULL, NULL, NULL }
/** Copies a CSR list into persistent buffers. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_copy_to_graph_buffers(const raggedmla_copy_to_graph_buffers_args* args,
                                                                  void* stream);

/* ---- attention --------------------------------------------------------------------------------------------------- */

/** Which implementation runs. */
typedef int32_t raggedmla_kernel;
enum {
  RAGGEDMLA_KERNEL_AUTOMATIC = 0,
  RAGGEDMLA_KERNEL_REFERENCE = 1,
  RAGGEDMLA_KERNEL_CPU = 2,
  RAGGEDMLA_KERNEL_PORTABLE = 3,
  RAGGEDMLA_KERNEL_SM90 = 4
};

/** C++: Segment. */
typedef struct raggedmla_segment {
  size_t struct_size;
  const raggedmla_kv* kv;
  const raggedmla_rows* rows;
} raggedmla_segment;
/** Defaults of raggedmla_segment. */
#define RAGGEDMLA_SEGMENT_INIT \
  { sizeof(raggedmla_segment), NULL, NULL }

/** What is done to the output before it is stored. */
typedef int32_t raggedmla_epilogue_kind;
enum { RAGGEDMLA_EPILOGUE_NONE = 0, RAGGEDMLA_EPILOGUE_INVERSE_ROPE = 1 };

/** C++: Epilogue. */
typedef struct raggedmla_epilogue {
  size_t struct_size;
  raggedmla_epilogue_kind kind;
  int32_t reserved;                  /**< 0 */
  const raggedmla_tensor* cos_sin;   /**< inverse RoPE */
  const raggedmla_tensor* positions; /**< inverse RoPE */
} raggedmla_epilogue;
/** Defaults of raggedmla_epilogue. */
#define RAGGEDMLA_EPILOGUE_INIT \
  { sizeof(raggedmla_epilogue), RAGGEDMLA_EPILOGUE_NONE, 0, NULL, NULL }

/** C++: Schedule. */
typedef struct raggedmla_schedule {
  size_t struct_size;
  raggedmla_kernel kernel;
  int32_t splits;          /**< 0: chosen */
  int32_t batch_invariant; /**< 0 or 1 */
  float expected_overlap;  /**< below 0: unknown */
} raggedmla_schedule;
/** Defaults of raggedmla_schedule. */
#define RAGGEDMLA_SCHEDULE_INIT \
  { sizeof(raggedmla_schedule), RAGGEDMLA_KERNEL_AUTOMATIC, 0, 0, -1.0f }

/** C++: Attention. */
typedef struct raggedmla_attention_args {
  size_t struct_size;
  const raggedmla_tensor* q;
  const raggedmla_segment* segments; /**< one to four, `segments[0].struct_size` bytes apart */
  int32_t segment_count;
  float scale;
  const raggedmla_tensor* sink; /**< optional */
  const raggedmla_tensor* out;
  const raggedmla_tensor* lse;        /**< optional */
  const raggedmla_tensor* max_logits; /**< optional */
  const raggedmla_epilogue* epilogue; /**< optional: none */
  const raggedmla_schedule* schedule; /**< optional: the defaults */
} raggedmla_attention_args;
/** Defaults of raggedmla_attention_args; the scale is 512^-0.5. */
#define RAGGEDMLA_ATTENTION_INIT \
  { sizeof(raggedmla_attention_args), NULL, NULL, 0, 0.04419417382415922f, NULL, NULL, NULL, NULL, NULL, NULL }
/** Scratch that raggedmla_attention needs. A call with smaller shapes may need more: ask for every one that is used. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_attention_workspace_bytes(const raggedmla_attention_args* args,
                                                                      size_t* bytes);
/** Sparse attention over the union of all segments' rows. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_attention(const raggedmla_attention_args* args,
                                                      const raggedmla_workspace* workspace, void* stream);

/** C++: MergeStates. */
typedef struct raggedmla_merge_states_args {
  size_t struct_size;
  const raggedmla_tensor* partial_out;
  const raggedmla_tensor* partial_lse;
  const raggedmla_tensor* sink; /**< optional */
  const raggedmla_tensor* out;
  const raggedmla_tensor* lse; /**< optional */
  raggedmla_kernel kernel;
  int32_t reserved; /**< 0 */
} raggedmla_merge_states_args;
/** Defaults of raggedmla_merge_states_args. */
#define RAGGEDMLA_MERGE_STATES_INIT \
  { sizeof(raggedmla_merge_states_args), NULL, NULL, NULL, NULL, NULL, RAGGEDMLA_KERNEL_AUTOMATIC, 0 }
/** Joins partial results over disjoint rows, and once the sink. */
RAGGEDMLA_EXPORT raggedmla_status raggedmla_merge_states(const raggedmla_merge_states_args* args, void* stream);

#ifdef __cplusplus
}
#endif

#endif
