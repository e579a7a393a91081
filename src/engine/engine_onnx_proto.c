// Protobuf as far as ONNX needs it: varints, fixed 32-bit floats and length-delimited fields. The
// numbers of fields are those of onnx.proto3, named where they are used.
#include <string.h>

#include "engine/engine_onnx_int.h"

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void varint(brim_str *out, uint64_t value) {
  while (value >= 0x80) {
    brim_str_append_char(out, (char)(unsigned char)(value | 0x80));
    value >>= 7;
  }
  brim_str_append_char(out, (char)(unsigned char)value);
}

static void tag(brim_str *out, int field, int wire) {
  varint(out, (uint64_t)((unsigned)field << 3 | (unsigned)wire));
}

void brim_proto_int(brim_str *out, int field, int64_t value) {
  tag(out, field, WIRE_VARINT);
  varint(out, (uint64_t)value);
}

// Little-endian, as every machine brim runs on is.
void brim_proto_float(brim_str *out, int field, float value) {
  char bytes[4];
  memcpy(bytes, &value, sizeof bytes);
  tag(out, field, WIRE_FIXED32);
  brim_str_append_n(out, bytes, sizeof bytes);
}

void brim_proto_head(brim_str *out, int field, uint64_t size) {
  tag(out, field, WIRE_BYTES);
  varint(out, size);
}

void brim_proto_bytes(brim_str *out, int field, const void *data, size_t size) {
  brim_proto_head(out, field, size);
  brim_str_append_n(out, (const char *)data, size);
}

void brim_proto_text(brim_str *out, int field, const char *text) {
  brim_proto_bytes(out, field, text, strlen(text));
}

void brim_proto_message(brim_str *out, int field, brim_str *inner) {
  if (brim_str_status(inner) && !out->status) out->status = brim_str_status(inner);
  brim_proto_bytes(out, field, inner->data, inner->len);
  brim_str_clear(inner);
}

// ValueInfoProto {name 1, type 2}, TypeProto {tensor_type 1}, Tensor {elem_type 1, shape 2},
// TensorShapeProto {dim 1}, Dimension {dim_value 1, dim_param 2}.
void brim_proto_value(brim_str *out, int field, const char *name, int type, int rank,
                      const int64_t *dim) {
  brim_str shape, inner, outer;
  brim_str_init(&shape);
  brim_str_init(&inner);
  brim_str_init(&outer);
  for (int i = 0; i < rank; i++) {
    if (dim[i] > 0) {
      brim_proto_int(&inner, 1, dim[i]);
    } else {
      brim_proto_text(&inner, 2, "N");
    }
    brim_proto_message(&shape, 1, &inner);
  }
  brim_proto_int(&outer, 1, type);
  brim_proto_message(&outer, 2, &shape);
  brim_proto_message(&inner, 1, &outer);  // TypeProto
  brim_proto_text(&outer, 1, name);
  brim_proto_message(&outer, 2, &inner);
  brim_proto_message(out, field, &outer);
  brim_str_deinit(&shape);
  brim_str_deinit(&inner);
  brim_str_deinit(&outer);
}
