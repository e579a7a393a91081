// Inside engine: what the entries of a checkpoint stand for. engine_checkpoint.c lists and loads
// them, engine_checkpoint_save.c writes them, engine_start.c finds them in another run's file.
#ifndef BRIM_ENGINE_CHECKPOINT_H_
#define BRIM_ENGINE_CHECKPOINT_H_

#include "engine/engine_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// The device's half of the state tensor, as far as a run depends on it.
enum { BRIM_CHECKPOINT_STATE = BRIM_STATE_UPDATES - BRIM_STATE_HOST + 1 };

#define BRIM_AVERAGE_PREFIX "ema."  // of the names of averages

// What an entry of the file stands for.
typedef enum brim_checkpoint_kind {
  BRIM_ITEM_PARAM,
  BRIM_ITEM_M,
  BRIM_ITEM_V,
  BRIM_ITEM_BUFFER,
  BRIM_ITEM_AVERAGE,
  BRIM_ITEM_AVERAGE_BUFFER,
  BRIM_ITEM_TRACKED,  // num_batches_tracked of a batch norm, for PyTorch; not read here
  BRIM_ITEM_STATE,    // loss scale, good steps and updates made
  BRIM_ITEM_KIND_COUNT
} brim_checkpoint_kind;

typedef struct brim_checkpoint_item {
  brim_checkpoint_kind kind;
  const brim_param *p;  // NULL for TRACKED and STATE
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
  bool optional;  // a file may lack it: the network continues with what it has
  bool reinit;    // of a last layer that is not taken from the file
} brim_checkpoint_item;

typedef struct brim_checkpoint_list {
  brim_checkpoint_item *items;
  size_t count;
  brim_arena *names;
} brim_checkpoint_list;

// Of everything, or of the model alone; to be freed by brim_checkpoint_list_deinit whatever the
// result.
brim_status brim_checkpoint_list_make(const brim_net *net, bool weights_only,
                                      brim_checkpoint_list *list);
void brim_checkpoint_list_deinit(brim_checkpoint_list *list);
// The items get names that begin with `prefix`.
brim_status brim_checkpoint_list_inside(brim_checkpoint_list *list, const char *prefix);
size_t brim_checkpoint_item_bytes(const brim_checkpoint_item *e);
brim_block_id brim_checkpoint_item_block(const brim_checkpoint_item *e);
unsigned char *brim_checkpoint_item_place(const brim_net *net, const brim_checkpoint_item *e);
// The entry of an item: of a model the average where the file has one; NULL = there is none.
const brim_safetensors_entry *brim_checkpoint_entry(const brim_safetensors *file,
                                                    const brim_checkpoint_item *want,
                                                    bool weights_only);
// Where in a file of another run a network's first weights are, and whether its last layer is to be
// taken from there (engine_start.c): the items get the file's names.
brim_status brim_checkpoint_find_start(const brim_net *net, const char *path,
                                       const brim_safetensors *file, brim_checkpoint_list *list,
                                       brim_net_reinit *out);
// Length of the names at the front of this one of what was put around a network: 9 of
// "backbone.fc.bias".
size_t brim_checkpoint_around(const char *name);
// BRIM_EUNSUPPORTED where the network's own weights are not f32.
brim_status brim_checkpoint_check_master(const brim_net *net);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_CHECKPOINT_H_
