// The part of CUPTI's ABI that brim uses, so that no vendor header is needed: codes, the leading fields of
// records, and calls. These fields have kept their places since CUDA 11.0 in every struct version. The asserts
// check them, and tests/profile/test_profile_cupti_abi.c compares this file with NVIDIA's header if it is
// installed. Callers: this folder, and tests that replace the library.
#ifndef BRIM_PROFILE_CUPTI_ABI_H_
#define BRIM_PROFILE_CUPTI_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define BRIM_CUPTI_ASSERT static_assert
#else
#define BRIM_CUPTI_ASSERT _Static_assert
#endif

// CUptiResult: the codes that brim tells apart
enum {
  BRIM_CUPTI_SUCCESS = 0,
  BRIM_CUPTI_OUT_OF_MEMORY = 8,
  BRIM_CUPTI_MAX_LIMIT_REACHED = 12,  // no more records in a buffer
  BRIM_CUPTI_NOT_COMPATIBLE = 14,
  BRIM_CUPTI_NOT_INITIALIZED = 15,
  BRIM_CUPTI_INVALID_KIND = 21,  // a kind that the library does not know, or an incomplete record
  BRIM_CUPTI_INSUFFICIENT_PRIVILEGES = 35,
  BRIM_CUPTI_MULTIPLE_SUBSCRIBERS = 39,
  BRIM_CUPTI_VIRTUAL_INSUFFICIENT_PRIVILEGES = 40,
  BRIM_CUPTI_UNKNOWN = 999
};

// cuptiGetVersion's numbers: a count up to CUDA 12.9, then xxyyzz (130001).
enum {
  BRIM_CUPTI_VERSION_11_8 = 18,  // the first version that knows Hopper
  BRIM_CUPTI_VERSION_12_9 = 27   // from this version on a buffer may be refused
};

// CUpti_ActivityKind
enum {
  BRIM_CUPTI_KIND_MEMCPY = 1,
  BRIM_CUPTI_KIND_MEMSET = 2,
  BRIM_CUPTI_KIND_KERNEL = 3,  // never enabled: it makes kernels wait for each other
  BRIM_CUPTI_KIND_CONCURRENT_KERNEL = 10,
  BRIM_CUPTI_KIND_MEMCPY2 = 22,         // between two GPUs
  BRIM_CUPTI_KIND_SYNCHRONIZATION = 38  // the host or a stream waits
};

// CUpti_ActivitySynchronizationType: a stream waits for an event, and the host does not wait
enum { BRIM_CUPTI_SYNC_STREAM_WAIT_EVENT = 2 };

// CUpti_ActivityMemcpyKind: host, device, array, peer
enum {
  BRIM_CUPTI_COPY_HTOD = 1,
  BRIM_CUPTI_COPY_DTOH = 2,
  BRIM_CUPTI_COPY_HTOA = 3,
  BRIM_CUPTI_COPY_ATOH = 4,
  BRIM_CUPTI_COPY_ATOA = 5,
  BRIM_CUPTI_COPY_ATOD = 6,
  BRIM_CUPTI_COPY_DTOA = 7,
  BRIM_CUPTI_COPY_DTOD = 8,
  BRIM_CUPTI_COPY_HTOH = 9,
  BRIM_CUPTI_COPY_PTOP = 10
};

enum {
  BRIM_CUPTI_MEMORY_PAGEABLE = 1,               // CUpti_ActivityMemoryKind
  BRIM_CUPTI_FLUSH_FORCED = 1,                  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
  BRIM_CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2  // CUpti_ActivityAttribute; its value is a size_t
};

typedef struct brim_cupti_kernel {  // CUpti_ActivityKernel4 to 10; memsets have the same fields
  int32_t kind;
  uint8_t unused[12];
  uint64_t start, end;  // ns; both 0 = the library could not time it
} brim_cupti_kernel;

typedef struct brim_cupti_copy {  // CUpti_ActivityMemcpy to 6, CUpti_ActivityMemcpyPtoP to 4
  int32_t kind;
  uint8_t copy_kind, src_kind, dst_kind, flags;
  uint64_t bytes;
  uint64_t start, end;
} brim_cupti_copy;

// The same records with the fields that details need. MEMCPY2 has other fields from the second device on: do not read
// details of it.
typedef struct brim_cupti_kernel_detail {  // CUpti_ActivityKernel4 to 10
  int32_t kind;
  uint8_t unused[12];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  uint8_t memory[16];
  uint32_t correlation;
  int64_t grid_id;
  const char *name;  // owned by the library
} brim_cupti_kernel_detail;

typedef struct brim_cupti_copy_detail {  // CUpti_ActivityMemcpy to 6, and CUpti_ActivityMemset
  brim_cupti_copy copy;
  uint32_t device, context, stream, correlation;
} brim_cupti_copy_detail;

typedef struct brim_cupti_sync {  // CUpti_ActivitySynchronization, 2
  int32_t kind, type;
  uint64_t start, end;
  uint32_t correlation, context, stream;
} brim_cupti_sync;

typedef struct brim_cupti_subscriber {  // CUpti_SubscriberParams
  size_t size;                          // of this struct
  const char *name;
  char *other;  // gets the name of the tool that is subscribed already
  size_t other_size;
} brim_cupti_subscriber;

BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel, start) == 16, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel, end) == 24, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy, copy_kind) == 4, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy, flags) == 7, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy, bytes) == 8, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy, start) == 16, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy, end) == 24, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel_detail, device) == 40, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel_detail, grid) == 52, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel_detail, block) == 64, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel_detail, correlation) == 92, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_kernel_detail, name) == 104, "CUpti_ActivityKernel");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy_detail, device) == 32, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_copy_detail, correlation) == 44, "CUpti_ActivityMemcpy");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_sync, start) == 8, "CUpti_ActivitySynchronization");
BRIM_CUPTI_ASSERT(offsetof(brim_cupti_sync, stream) == 32, "CUpti_ActivitySynchronization");
BRIM_CUPTI_ASSERT(sizeof(brim_cupti_subscriber) == 4 * sizeof(size_t), "CUpti_SubscriberParams");

typedef void (*brim_cupti_callback)(void *user, int domain, uint32_t id, const void *data);
typedef void (*brim_cupti_request)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*brim_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                    size_t valid);

// The calls that brim uses. Optional calls may be NULL. All return a CUptiResult.
typedef struct brim_cupti_api {
  int (*version)(uint32_t *version);                  // cuptiGetVersion
  int (*result_string)(int code, const char **text);  // (optional) cuptiGetResultString
  int (*subscribe)(void **subscriber, brim_cupti_callback callback, void *user);
  // (optional, CUDA 13) called only to learn which tool is subscribed already
  int (*subscribe_v2)(void **subscriber, brim_cupti_callback callback, void *user,
                      brim_cupti_subscriber *params);
  int (*unsubscribe)(void *subscriber);
  int (*set_attribute)(int attribute, size_t *size, void *value);  // (optional)
  int (*register_callbacks)(brim_cupti_request request, brim_cupti_complete complete);
  int (*enable)(int kind);      // cuptiActivityEnable
  int (*disable)(int kind);     // cuptiActivityDisable
  int (*flush)(uint32_t flag);  // cuptiActivityFlushAll
  int (*next_record)(uint8_t *buffer, size_t valid, void **record);
  int (*dropped)(void *context, uint32_t stream, size_t *count);  // (optional) since the last call
  int (*timestamp)(uint64_t *ns);                                 // the records' clock
} brim_cupti_api;

#endif  // BRIM_PROFILE_CUPTI_ABI_H_
