// A fake CUPTI: tests queue records, and a flush hands them out, in buffers of the size and order that a test asks for,
// with an error code for any call. One per test program.
#ifndef BRIM_TESTS_PROFILE_FAKE_CUPTI_H_
#define BRIM_TESTS_PROFILE_FAKE_CUPTI_H_

#include <pthread.h>
#include <stdbool.h>

#include "profile/cupti/cupti_int.h"
#include "test.h"

typedef enum fake_call {
  FAKE_VERSION,
  FAKE_SUBSCRIBE,
  FAKE_UNSUBSCRIBE,
  FAKE_SET_ATTRIBUTE,
  FAKE_REGISTER,
  FAKE_ENABLE,
  FAKE_DISABLE,
  FAKE_FLUSH,
  FAKE_DROPPED,
  FAKE_TIMESTAMP,
  FAKE_CALLS
} fake_call;

enum { FAKE_RECORDS = 4096, FAKE_RECORD_BYTES = 216, FAKE_KINDS = 64 };

typedef struct fake_record {
  size_t size;  // the same size as the library's own record
  uint8_t bytes[FAKE_RECORD_BYTES];
} fake_record;

static struct {
  uint32_t version;
  uint64_t now;
  int code[FAKE_CALLS];   // status of a call; 0 = success
  int skip[FAKE_CALLS];   // this many calls succeed first
  int calls[FAKE_CALLS];  // calls so far
  const char *other;      // name of the tool that holds the subscription, for the newer call
  bool subscribed;
  bool enabled[FAKE_KINDS];
  size_t pool_limit, dropped;
  brim_cupti_request request;
  brim_cupti_complete complete;
  fake_record records[FAKE_RECORDS];
  size_t count;
  size_t per_buffer;  // records per buffer; 0 = all in one
  bool backwards;     // buffers arrive in reverse order
  bool threads;       // each buffer arrives on its own thread
  bool incomplete;    // the last buffer ends in a record without a kind
} fake;

static inline int fake_answer(fake_call call) {
  fake.calls[call]++;
  if (fake.skip[call] > 0) {
    fake.skip[call]--;
    return 0;
  }
  return fake.code[call];
}

//---------------------------------- records ----------------------------------

static inline fake_record *fake_add(int32_t kind, size_t size) {
  assert_true(fake.count < FAKE_RECORDS);
  fake_record *r = &fake.records[fake.count++];
  memset(r->bytes, 0xa5, sizeof r->bytes);  // bytes behind the leading fields are noise
  memcpy(r->bytes, &kind, sizeof kind);
  r->size = size;
  return r;
}

static inline void fake_times(fake_record *r, uint64_t start, uint64_t end) {
  memcpy(r->bytes + 16, &start, sizeof start);
  memcpy(r->bytes + 24, &end, sizeof end);
}

static inline void fake_kernel(uint64_t start, uint64_t end) {
  fake_times(fake_add(BRIM_CUPTI_KIND_CONCURRENT_KERNEL, 216), start, end);
}

static inline void fake_memset(uint64_t start, uint64_t end) {
  fake_times(fake_add(BRIM_CUPTI_KIND_MEMSET, 88), start, end);
}

// `src` and `dst`: CUpti_ActivityMemoryKind (1 pageable, 2 pinned, 3 device).
static inline void fake_copy(uint8_t copy_kind, uint8_t src, uint8_t dst, uint64_t bytes,
                             uint64_t start, uint64_t end) {
  bool peer = copy_kind == BRIM_CUPTI_COPY_PTOP;
  fake_record *r = fake_add(peer ? BRIM_CUPTI_KIND_MEMCPY2 : BRIM_CUPTI_KIND_MEMCPY, 96);
  const uint8_t leading[] = {copy_kind, src, dst, 0};
  memcpy(r->bytes + 4, leading, sizeof leading);
  memcpy(r->bytes + 8, &bytes, sizeof bytes);
  fake_times(r, start, end);
}

// The same, with a name and the further fields of details.
static inline void fake_named_kernel(const char *name, uint32_t stream, uint32_t correlation,
                                     uint64_t start, uint64_t end) {
  fake_record *r = fake_add(BRIM_CUPTI_KIND_CONCURRENT_KERNEL, 216);
  brim_cupti_kernel_detail k = {.kind = BRIM_CUPTI_KIND_CONCURRENT_KERNEL,
                                .start = start,
                                .end = end,
                                .stream = stream,
                                .grid = {4, 2, 1},
                                .block = {128, 1, 1},
                                .correlation = correlation,
                                .name = name};
  memcpy(r->bytes, &k, sizeof k);
}

static inline void fake_sync(int32_t type, uint64_t start, uint64_t end) {
  fake_record *r = fake_add(BRIM_CUPTI_KIND_SYNCHRONIZATION, 40);
  brim_cupti_sync s = {.kind = BRIM_CUPTI_KIND_SYNCHRONIZATION,
                       .type = type,
                       .start = start,
                       .end = end,
                       .correlation = 5};
  memcpy(r->bytes, &s, sizeof s);
}

//---------------------------------- delivery ----------------------------------

typedef struct fake_parcel {
  uint8_t *buffer;
  size_t size, valid;
} fake_parcel;

static inline void *fake_hand_out(void *ctx) {
  fake_parcel *p = (fake_parcel *)ctx;
  fake.complete(NULL, 0, p->buffer, p->size, p->valid);
  return NULL;
}

static inline void fake_deliver_range(size_t from, size_t to, bool last) {
  fake_parcel p = {0};
  size_t max_records = 99;
  fake.request(&p.buffer, &p.size, &max_records);
  assert_int_equal(max_records, 0);
  if (!p.buffer) {
    fake.dropped += to - from;
    return;
  }
  assert_int_equal((uintptr_t)p.buffer % 8, 0);
  for (size_t i = from; i < to; i++) {
    assert_true(p.valid + fake.records[i].size + 8 <= p.size);
    memcpy(p.buffer + p.valid, fake.records[i].bytes, fake.records[i].size);
    p.valid += fake.records[i].size;
  }
  if (fake.incomplete && last) {
    memset(p.buffer + p.valid, 0, 8);
    p.valid += 8;
  }
  if (!fake.threads) {
    fake_hand_out(&p);
    return;
  }
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, fake_hand_out, &p), 0);
  pthread_join(thread, NULL);
}

static inline void fake_deliver(void) {
  size_t step = fake.per_buffer ? fake.per_buffer : FAKE_RECORDS;
  size_t parcels = (fake.count + step - 1) / step;
  for (size_t i = 0; i < parcels; i++) {
    size_t at = (fake.backwards ? parcels - 1 - i : i) * step;
    fake_deliver_range(at, at + step < fake.count ? at + step : fake.count, i + 1 == parcels);
  }
  fake.count = 0;
}

//---------------------------------- calls ----------------------------------

static inline int fake_version(uint32_t *version) {
  *version = fake.version;
  return fake_answer(FAKE_VERSION);
}

static inline int fake_result_string(int code, const char **text) {
  (void)code;
  *text = "CUPTI_ERROR_FAKE";
  return 0;
}

static inline int fake_subscribe(void **subscriber, brim_cupti_callback callback, void *user) {
  assert_non_null(callback);
  callback(user, 0, 0, NULL);
  int code = fake_answer(FAKE_SUBSCRIBE);
  if (code == 0) {
    assert_false(fake.subscribed);
    fake.subscribed = true;
    *subscriber = &fake;
  }
  return code;
}

static inline int fake_subscribe_v2(void **subscriber, brim_cupti_callback callback, void *user,
                                    brim_cupti_subscriber *params) {
  assert_int_equal(params->size, sizeof *params);
  if (fake.other) snprintf(params->other, params->other_size, "%s", fake.other);
  return fake_subscribe(subscriber, callback, user);
}

static inline int fake_unsubscribe(void *subscriber) {
  assert_ptr_equal(subscriber, &fake);
  assert_true(fake.subscribed);
  fake.subscribed = false;
  return fake_answer(FAKE_UNSUBSCRIBE);
}

static inline int fake_set_attribute(int attribute, size_t *size, void *value) {
  assert_int_equal(attribute, BRIM_CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT);
  assert_int_equal(*size, sizeof fake.pool_limit);
  memcpy(&fake.pool_limit, value, *size);
  return fake_answer(FAKE_SET_ATTRIBUTE);
}

static inline int fake_register(brim_cupti_request request, brim_cupti_complete complete) {
  assert_true(fake.subscribed);
  fake.request = request;
  fake.complete = complete;
  return fake_answer(FAKE_REGISTER);
}

static inline int fake_enable(int kind) {
  int code = fake_answer(FAKE_ENABLE);
  assert_non_null(fake.request);
  if (code == 0) fake.enabled[kind] = true;
  return code;
}

static inline int fake_disable(int kind) {
  assert_true(fake.enabled[kind]);
  fake.enabled[kind] = false;
  return fake_answer(FAKE_DISABLE);
}

static inline int fake_flush(uint32_t flag) {
  (void)flag;
  int code = fake_answer(FAKE_FLUSH);
  if (code == 0) fake_deliver();
  return code;
}

static inline int fake_next_record(uint8_t *buffer, size_t valid, void **record) {
  uint8_t *at = buffer;
  int32_t kind;
  if (*record) {
    at = (uint8_t *)*record;
    memcpy(&kind, at, sizeof kind);
    bool copy = kind == BRIM_CUPTI_KIND_MEMCPY || kind == BRIM_CUPTI_KIND_MEMCPY2;
    bool kernel = kind == BRIM_CUPTI_KIND_CONCURRENT_KERNEL;
    at += kernel ? 216 : copy ? 96 : kind == BRIM_CUPTI_KIND_MEMSET ? 88 : 40;
  }
  if (at >= buffer + valid) return BRIM_CUPTI_MAX_LIMIT_REACHED;
  memcpy(&kind, at, sizeof kind);
  if (kind == 0) return BRIM_CUPTI_INVALID_KIND;
  *record = at;
  return 0;
}

static inline int fake_dropped(void *context, uint32_t stream, size_t *count) {
  assert_null(context);
  assert_int_equal(stream, 0);
  *count = fake.dropped;
  fake.dropped = 0;
  return fake_answer(FAKE_DROPPED);
}

static inline int fake_timestamp(uint64_t *ns) {
  *ns = fake.now;
  return fake_answer(FAKE_TIMESTAMP);
}

// Resets everything; the time is 1000.
static inline brim_cupti_api fake_reset(void) {
  memset(&fake, 0, sizeof fake);
  fake.version = 130001;
  fake.now = 1000;
  return (brim_cupti_api){.version = fake_version,
                          .result_string = fake_result_string,
                          .subscribe = fake_subscribe,
                          .subscribe_v2 = fake_subscribe_v2,
                          .unsubscribe = fake_unsubscribe,
                          .set_attribute = fake_set_attribute,
                          .register_callbacks = fake_register,
                          .enable = fake_enable,
                          .disable = fake_disable,
                          .flush = fake_flush,
                          .next_record = fake_next_record,
                          .dropped = fake_dropped,
                          .timestamp = fake_timestamp};
}

static inline bool fake_any_enabled(void) {
  for (int i = 0; i < FAKE_KINDS; i++) {
    if (fake.enabled[i]) return true;
  }
  return false;
}

#endif  // BRIM_TESTS_PROFILE_FAKE_CUPTI_H_
