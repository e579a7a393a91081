// Requests with types, of workers: the calls of the store through a link.
#include <stdio.h>
#include <string.h>

#include "base/base_status.h"
#include "lab/lab_link.h"
#include "lab/lab_ops.h"
#include "lab/lab_wire.h"

// Always consumes the request; NULL: it could not be made.
static brim_status call(brim_lab_link *link, brim_status made, json_t *request, json_t **reply) {
  brim_status status = made ? made : brim_lab_call(link, request, reply);
  json_decref(request);
  return status;
}

static brim_status begin(const char *op, json_t **out) {
  brim_json_setup();
  *out = json_object();
  return brim_json_put(*out, "op", json_string(op));
}

static brim_status put_text(json_t *o, const char *key, const char *value) {
  return value ? brim_json_put(o, key, brim_lab_wire_text(value)) : BRIM_OK;
}

static brim_status bad_reply(void) {
  return brim_fail(BRIM_EABI, "the server's reply lacks a field; it may be of another version");
}

brim_status brim_lab_now(brim_lab_link *link, int64_t *ms) {
  json_t *request, *reply = NULL;
  brim_status status = begin("hello", &request);
  BRIM_TRY(call(link, status, request, &reply));
  status = brim_lab_wire_int(reply, "now", true, ms);
  json_decref(reply);
  return status ? bad_reply() : BRIM_OK;
}

brim_status brim_lab_whoami(brim_lab_link *link, char id[65], char version[32]) {
  json_t *request, *reply = NULL;
  const char *protocol = "", *name = "", *is = "";
  brim_status status = begin("whoami", &request);
  BRIM_TRY(call(link, status, request, &reply));
  bool whole = !brim_lab_wire_string(reply, "protocol", true, &protocol) &&
               !brim_lab_wire_string(reply, "name", true, &name) &&
               !brim_lab_wire_string(reply, "version", true, &is);
  bool same = strcmp(protocol, BRIM_LAB_PROTOCOL) == 0;
  snprintf(id, 65, "%s", name);
  snprintf(version, 32, "%s", is);
  json_decref(reply);
  if (!whole) return bad_reply();
  if (same) return BRIM_OK;
  return brim_fail(
      BRIM_EABI,
      "the server is brim %s and speaks another protocol than this brim (" BRIM_LAB_PROTOCOL ")",
      version);
}

static brim_status put_request(json_t *o, const brim_store_request *r) {
  BRIM_TRY(put_text(o, "worker", r->worker));
  BRIM_TRY(put_text(o, "claim_id", r->claim_id));
  BRIM_TRY(put_text(o, "host", r->host));
  BRIM_TRY(put_text(o, "devices", r->devices));
  BRIM_TRY(put_text(o, "exp", r->exp));
  BRIM_TRY(put_text(o, "grid", r->grid));
  BRIM_TRY(brim_json_put(o, "free_gpus", json_integer(r->free_gpus)));
  return brim_json_put(o, "free_bytes", json_integer(r->free_bytes));
}

static brim_status take_claimed(const json_t *reply, brim_store_claimed *out) {
  const json_t *row = json_object_get(reply, "exp");
  brim_store_exp exp;
  if (!row) return BRIM_OK;
  memset(&exp, 0, sizeof exp);
  if (brim_lab_wire_get(row, BRIM_LAB_EXP, &exp) || brim_store_check_id(exp.id) ||
      brim_lab_wire_int(reply, "attempt", true, &out->ref.attempt) ||
      brim_lab_wire_int(reply, "fence", true, &out->ref.fence) ||
      brim_lab_wire_lease(reply, &out->lease_ms)) {
    return bad_reply();
  }
  memcpy(out->ref.exp, exp.id, sizeof out->ref.exp);
  return brim_store_exp_copy(&exp, &out->exp);
}

brim_status brim_lab_claim(brim_lab_link *link, const brim_store_request *request,
                           brim_store_claimed *out) {
  json_t *o, *reply = NULL;
  *out = (brim_store_claimed){0};
  brim_status status = begin("claim", &o);
  if (!status) status = put_request(o, request);
  BRIM_TRY(call(link, status, o, &reply));
  status = take_claimed(reply, out);
  json_decref(reply);
  return status;
}

brim_status brim_lab_seen(brim_lab_link *link, const brim_store_worker *worker) {
  json_t *o;
  brim_status status = begin("seen", &o);
  if (!status) status = put_text(o, "worker", worker->id);
  if (!status) status = put_text(o, "host", worker->host);
  if (!status) status = put_text(o, "gpus", worker->gpus);
  if (!status) status = put_text(o, "version", worker->version);
  if (!status) status = put_text(o, "status", worker->status);
  if (!status && worker->left) status = brim_json_put(o, "left", json_true());
  return call(link, status, o, NULL);
}
