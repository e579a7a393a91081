// Our copy of CUPTI's ABI against NVIDIA's own header, if this machine has it: this program fails to compile if the
// copy is wrong. It links nothing of CUPTI.
#include "profile/cupti/cupti_abi.h"

#include "test.h"

#ifdef BRIM_TEST_CUPTI_HEADER
#include <cupti.h>

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
SAME(BRIM_CUPTI_SUCCESS, CUPTI_SUCCESS);
SAME(BRIM_CUPTI_OUT_OF_MEMORY, CUPTI_ERROR_OUT_OF_MEMORY);
SAME(BRIM_CUPTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME(BRIM_CUPTI_NOT_COMPATIBLE, CUPTI_ERROR_NOT_COMPATIBLE);
SAME(BRIM_CUPTI_NOT_INITIALIZED, CUPTI_ERROR_NOT_INITIALIZED);
SAME(BRIM_CUPTI_INVALID_KIND, CUPTI_ERROR_INVALID_KIND);
SAME(BRIM_CUPTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME(BRIM_CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(BRIM_CUPTI_VIRTUAL_INSUFFICIENT_PRIVILEGES,
     CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
SAME(BRIM_CUPTI_UNKNOWN, CUPTI_ERROR_UNKNOWN);
SAME(BRIM_CUPTI_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME(BRIM_CUPTI_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
SAME(BRIM_CUPTI_KIND_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL);
SAME(BRIM_CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(BRIM_CUPTI_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME(BRIM_CUPTI_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME(BRIM_CUPTI_SYNC_STREAM_WAIT_EVENT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
SAME(BRIM_CUPTI_COPY_HTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME(BRIM_CUPTI_COPY_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME(BRIM_CUPTI_COPY_HTOA, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA);
SAME(BRIM_CUPTI_COPY_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH);
SAME(BRIM_CUPTI_COPY_ATOA, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA);
SAME(BRIM_CUPTI_COPY_ATOD, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD);
SAME(BRIM_CUPTI_COPY_DTOA, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA);
SAME(BRIM_CUPTI_COPY_DTOD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME(BRIM_CUPTI_COPY_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
SAME(BRIM_CUPTI_COPY_PTOP, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
SAME(BRIM_CUPTI_MEMORY_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
SAME(BRIM_CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME(BRIM_CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT);

// The calls take and return enums where ours have int.
SAME(sizeof(int), sizeof(CUptiResult));
SAME(sizeof(int), sizeof(CUpti_ActivityKind));
SAME(sizeof(int), sizeof(CUpti_ActivityAttribute));
SAME(sizeof(int), sizeof(CUpti_CallbackDomain));
SAME(sizeof(uint32_t), sizeof(CUpti_CallbackId));
SAME(sizeof(void *), sizeof(CUpti_SubscriberHandle));
SAME(sizeof(void *), sizeof(CUcontext));

#define SAME_FIELD(ours, field, theirs, their_field)          \
  SAME(offsetof(ours, field), offsetof(theirs, their_field)); \
  SAME(sizeof(((ours *)NULL)->field), sizeof(((theirs *)NULL)->their_field))
#define SAME_KERNEL(theirs)                            \
  SAME_FIELD(brim_cupti_kernel, kind, theirs, kind);   \
  SAME_FIELD(brim_cupti_kernel, start, theirs, start); \
  SAME_FIELD(brim_cupti_kernel, end, theirs, end);     \
  _Static_assert(sizeof(brim_cupti_kernel) <= sizeof(theirs), #theirs)
#define SAME_COPY(theirs)                                   \
  SAME_FIELD(brim_cupti_copy, kind, theirs, kind);          \
  SAME_FIELD(brim_cupti_copy, copy_kind, theirs, copyKind); \
  SAME_FIELD(brim_cupti_copy, src_kind, theirs, srcKind);   \
  SAME_FIELD(brim_cupti_copy, dst_kind, theirs, dstKind);   \
  SAME_FIELD(brim_cupti_copy, flags, theirs, flags);        \
  SAME_FIELD(brim_cupti_copy, bytes, theirs, bytes);        \
  SAME_FIELD(brim_cupti_copy, start, theirs, start);        \
  SAME_FIELD(brim_cupti_copy, end, theirs, end);            \
  _Static_assert(sizeof(brim_cupti_copy) <= sizeof(theirs), #theirs)

#define SAME_KERNEL_DETAIL(theirs)                                          \
  SAME_FIELD(brim_cupti_kernel_detail, device, theirs, deviceId);           \
  SAME_FIELD(brim_cupti_kernel_detail, stream, theirs, streamId);           \
  SAME_FIELD(brim_cupti_kernel_detail, grid[0], theirs, gridX);             \
  SAME_FIELD(brim_cupti_kernel_detail, grid[2], theirs, gridZ);             \
  SAME_FIELD(brim_cupti_kernel_detail, block[0], theirs, blockX);           \
  SAME_FIELD(brim_cupti_kernel_detail, block[2], theirs, blockZ);           \
  SAME_FIELD(brim_cupti_kernel_detail, correlation, theirs, correlationId); \
  SAME_FIELD(brim_cupti_kernel_detail, name, theirs, name);                 \
  _Static_assert(sizeof(brim_cupti_kernel_detail) <= sizeof(theirs), #theirs)
#define SAME_COPY_DETAIL(theirs)                                          \
  SAME_FIELD(brim_cupti_copy_detail, device, theirs, deviceId);           \
  SAME_FIELD(brim_cupti_copy_detail, stream, theirs, streamId);           \
  SAME_FIELD(brim_cupti_copy_detail, correlation, theirs, correlationId); \
  _Static_assert(sizeof(brim_cupti_copy_detail) <= sizeof(theirs), #theirs)
SAME_KERNEL_DETAIL(CUpti_ActivityKernel8);
SAME_COPY_DETAIL(CUpti_ActivityMemcpy5);
SAME_COPY_DETAIL(CUpti_ActivityMemset4);
SAME_FIELD(brim_cupti_sync, type, CUpti_ActivitySynchronization, type);
SAME_FIELD(brim_cupti_sync, start, CUpti_ActivitySynchronization, start);
SAME_FIELD(brim_cupti_sync, end, CUpti_ActivitySynchronization, end);
SAME_FIELD(brim_cupti_sync, correlation, CUpti_ActivitySynchronization, correlationId);
SAME_FIELD(brim_cupti_sync, stream, CUpti_ActivitySynchronization, streamId);
_Static_assert(sizeof(brim_cupti_sync) <= sizeof(CUpti_ActivitySynchronization), "sync");

// Struct versions from CUDA 11.8 on, as far as this header has them.
SAME_KERNEL(CUpti_ActivityKernel8);
SAME_KERNEL(CUpti_ActivityMemset4);
SAME_COPY(CUpti_ActivityMemcpy5);
SAME_COPY(CUpti_ActivityMemcpyPtoP4);
#if CUPTI_API_VERSION >= 19
SAME_KERNEL(CUpti_ActivityKernel9);
SAME_KERNEL_DETAIL(CUpti_ActivityKernel9);
#endif
#if CUPTI_API_VERSION >= 130000
SAME_KERNEL(CUpti_ActivityKernel10);
SAME_KERNEL_DETAIL(CUpti_ActivityKernel10);
SAME_COPY(CUpti_ActivityMemcpy6);
SAME_COPY_DETAIL(CUpti_ActivityMemcpy6);
#endif
#ifdef CUPTI_SUBSCRIBER_NAME_MAX_LEN
SAME_FIELD(brim_cupti_subscriber, size, CUpti_SubscriberParams, structSize);
SAME_FIELD(brim_cupti_subscriber, name, CUpti_SubscriberParams, subscriberName);
SAME_FIELD(brim_cupti_subscriber, other, CUpti_SubscriberParams, oldSubscriberName);
SAME_FIELD(brim_cupti_subscriber, other_size, CUpti_SubscriberParams, oldSubscriberSize);
SAME(sizeof(brim_cupti_subscriber), CUpti_SubscriberParams_STRUCT_SIZE);
#endif

// The calls, as brim_cupti_api has them with int for enums and void * for opaque handles.
#define CALL(name, ...) \
  _Static_assert(_Generic(&name, CUptiResult(*)(__VA_ARGS__) : 1, default : 0), #name)
CALL(cuptiGetVersion, uint32_t *);
CALL(cuptiGetResultString, CUptiResult, const char **);
CALL(cuptiSubscribe, CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
#ifdef CUPTI_SUBSCRIBER_NAME_MAX_LEN
CALL(cuptiSubscribe_v2, CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *,
     CUpti_SubscriberParams *);
#endif
CALL(cuptiUnsubscribe, CUpti_SubscriberHandle);
CALL(cuptiActivitySetAttribute, CUpti_ActivityAttribute, size_t *, void *);
CALL(cuptiActivityRegisterCallbacks, CUpti_BuffersCallbackRequestFunc,
     CUpti_BuffersCallbackCompleteFunc);
CALL(cuptiActivityEnable, CUpti_ActivityKind);
CALL(cuptiActivityDisable, CUpti_ActivityKind);
CALL(cuptiActivityFlushAll, uint32_t);
CALL(cuptiActivityGetNextRecord, uint8_t *, size_t, CUpti_Activity **);
CALL(cuptiActivityGetNumDroppedRecords, CUcontext, uint32_t, size_t *);
CALL(cuptiGetTimestamp, uint64_t *);
#define CALLBACK(type, ...) \
  _Static_assert(_Generic((type)NULL, void (*)(__VA_ARGS__) : 1, default : 0), #type)
CALLBACK(CUpti_CallbackFunc, void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *);
CALLBACK(CUpti_BuffersCallbackRequestFunc, uint8_t **, size_t *, size_t *);
CALLBACK(CUpti_BuffersCallbackCompleteFunc, CUcontext, uint32_t, uint8_t *, size_t, size_t);
#endif

static void test_layouts_are_nvidias(void **state) {
  (void)state;
#ifdef BRIM_TEST_CUPTI_HEADER
  print_message("compared with CUPTI %d\n", CUPTI_API_VERSION);
#else
  BRIM_SKIP("cupti.h was not found when this was built");
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_are_nvidias)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
