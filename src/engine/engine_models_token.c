// The encoder over patches of a signal: embed, + pos_embed, blocks of attention and feed-forward with
// the norm before each, norm, mean over tokens, head. Names follow timm's vision transformers:
//   embed.weight, pos_embed, blocks.0.norm1, blocks.0.attn.qkv, blocks.0.attn.proj, blocks.0.norm2,
//   blocks.0.mlp.fc1, blocks.0.mlp.fc2, norm, head
// A block is a segment for recomputation.
#include "engine/engine_models.h"

static const float layernorm_eps = 1e-5f;
static const int64_t max_heads = 1024;

typedef struct block_spec {
  int64_t hidden, inner;
  int32_t heads;
  float dropout;
} block_spec;

static int32_t block(const brim_model *m, int32_t x, const block_spec *b, long long n) {
  brim_graph *g = m->g;
  brim_graph_segment_begin(g);
  int32_t y =
      brim_graph_layernorm(g, x, layernorm_eps, brim_model_label(m, "blocks.%lld.norm1", n).text);
  y = brim_graph_linear(g, y, 3 * b->hidden, true,
                        brim_model_label(m, "blocks.%lld.attn.qkv", n).text);
  y = brim_graph_attention(g, y, b->heads);
  y = brim_graph_linear(g, y, b->hidden, true,
                        brim_model_label(m, "blocks.%lld.attn.proj", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  y = brim_graph_layernorm(g, x, layernorm_eps, brim_model_label(m, "blocks.%lld.norm2", n).text);
  y = brim_graph_linear(g, y, b->inner, true, brim_model_label(m, "blocks.%lld.mlp.fc1", n).text);
  y = brim_graph_act(g, y, BRIM_ACT_GELU);
  y = brim_graph_linear(g, y, b->hidden, true, brim_model_label(m, "blocks.%lld.mlp.fc2", n).text);
  y = brim_graph_dropout(g, y, b->dropout);
  x = brim_graph_add(g, x, y);
  brim_graph_segment_end(g);
  return x;
}

// The largest divisor of `n` that is not above `most`; at least 1.
static int64_t divisor(int64_t n, int64_t most) {
  for (int64_t d = most < n ? most : n; d > 1; d--) {
    if (n % d == 0) return d;
  }
  return 1;
}

static int32_t build_transformer(const brim_model *m) {
  int64_t depth = brim_model_int(m, "depth", 6, 1, 1000);
  int64_t hidden = brim_model_int(m, "hidden", 64, 1, 65536);
  int64_t heads = brim_model_int(m, "heads", 0, 0, max_heads);
  int64_t patch = brim_model_int(m, "patch", 0, 0, 65536);
  int64_t ratio = brim_model_int(m, "mlp_ratio", 4, 1, 64);
  // not given: heads of width 16 or the next that divides, tokens of at most 32 samples
  if (heads == 0) heads = divisor(hidden, hidden / 16 < max_heads ? hidden / 16 : max_heads);
  if (patch == 0) patch = divisor(m->sample->dim[0], 32);
  block_spec b = {.hidden = hidden,
                  .inner = hidden * ratio,
                  .heads = (int32_t)heads,
                  .dropout = brim_model_dropout(m)};
  if (hidden % heads != 0) {
    brim_model_fail(m, "hidden is %lld, which is not a multiple of heads = %lld", (long long)hidden,
                    (long long)heads);
  }
  if (m->g->status) return -1;
  int32_t x = brim_model_tokens(m, patch);
  x = brim_graph_linear(m->g, x, hidden, true, brim_model_label(m, "embed").text);
  x = brim_graph_pos(m->g, x, brim_model_label(m, "pos_embed").text);
  for (int64_t i = 0; i < depth; i++) x = block(m, x, &b, (long long)i);
  x = brim_graph_layernorm(m->g, x, layernorm_eps, brim_model_label(m, "norm").text);
  x = brim_graph_mean(m->g, x);
  if (m->features) return x;
  return brim_graph_linear(m->g, x, m->outputs, true, brim_model_label(m, "head").text);
}

const brim_model_row brim_models_token[] = {
    {"transformer",
     {"depth", "hidden", "heads", "patch", "mlp_ratio", "dropout", "num_classes"},
     build_transformer},
    {NULL, {NULL}, NULL},
};
