// Writes trained weights and their model as an ONNX file, for onnxruntime and other programs. The graph is made
// from the model's layers, so every model of brim can be exported. Called by: export.
#ifndef BRIM_ENGINE_ONNX_H_
#define BRIM_ENGINE_ONNX_H_

#include "engine/engine.h"

enum { BRIM_ONNX_OPSET_MIN = 13, BRIM_ONNX_OPSET_MAX = 21, BRIM_ONNX_OPSET = 17 };

typedef struct brim_onnx_options {
  int opset;       // BRIM_ONNX_OPSET_MIN to _MAX
  int64_t batch;   // rows of the input; 0 = any number ("N")
  bool normalize;  // the graph takes samples as the data has them (uint8 stays uint8) and does the
                   // arithmetic of the network's input itself; false: it takes float32, normalised
  bool logits;     // the outputs of a network without classes are logits: one for each label
  bool nhwc;       // samples of rank 3 are N,H,W,C; false: N,C,H,W
  const char
      *ema;  // prefix of averaged weights ("ema."), used where they exist; NULL = plain weights
  const json_t *metadata;  // object of strings for metadata_props; NULL = none
  const char *name;        // name of the graph: "resnet18"
} brim_onnx_options;

#define BRIM_ONNX_MAX_OUTPUTS 2
// A summary of the written file.
typedef struct brim_onnx_info {
  int nodes, weights;
  int64_t parameters;  // values of all weights, without batch norm's statistics
  uint64_t bytes;      // size of the file
  bool ema;            // at least one weight is an averaged one
  brim_dtype input_dtype;
  int32_t input_rank;  // without the batch
  int64_t input_dim[4];
  int output_count;
  const char *output[BRIM_ONNX_MAX_OUTPUTS];  // "logits", "output"; "features" and "projection"
  int64_t width[BRIM_ONNX_MAX_OUTPUTS];
} brim_onnx_info;

// Exports a network. `spec`: model, input and classes or target_dim; other members are ignored. A simclr model has
// two outputs, the encoder's features and the projection. The file is written whole or not at all.
brim_status brim_onnx_export(const brim_net_spec *spec, const brim_safetensors *weights,
                             const brim_onnx_options *options, const char *path,
                             brim_onnx_info *out);

#endif  // BRIM_ENGINE_ONNX_H_
