// Whether two sets can serve one network, one to train on and one to evaluate on, and what is
// reported where they cannot: both by name, with what differs.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base_text.h"
#include "data/data.h"

enum { NAME_BYTES = 256, TEXT_BYTES = 160 };

brim_status brim_source_open_failed(brim_status status) {
  return status == BRIM_EIO || status == BRIM_EUNSUPPORTED ? BRIM_EINVAL : status;
}

// "set.h5:train/x" of "set.h5:train/x[0]": the set, not the sample.
static void name_set(const brim_source *source, char out[NAME_BYTES]) {
  brim_source_describe(source, 0, out, NAME_BYTES);
  char *bracket = strrchr(out, '[');
  if (bracket && bracket > out && out[strlen(out) - 1] == ']') *bracket = '\0';
}

static void shape_text(const brim_source_info *info, char out[TEXT_BYTES]) {
  size_t used = 0;
  for (int i = 0; i < info->rank && used < TEXT_BYTES; i++) {
    int n = snprintf(out + used, TEXT_BYTES - used, "%s%" PRId64, i ? ", " : "(", info->dim[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used >= TEXT_BYTES) return;
  snprintf(out + used, TEXT_BYTES - used, ") %s",
           info->type == BRIM_SAMPLE_U8 ? "uint8" : "float32");
}

static void target_text(const brim_source_info *info, char out[TEXT_BYTES]) {
  if (info->classes > 0) {
    snprintf(out, TEXT_BYTES, brim_tr("labels of %lld classes"), (long long)info->classes);
  } else if (info->target_dim > 0) {
    snprintf(out, TEXT_BYTES, brim_tr("numbers, %lld a sample"), (long long)info->target_dim);
  } else {
    snprintf(out, TEXT_BYTES, "%s", brim_tr("none"));
  }
}

static bool same_shape(const brim_source_info *a, const brim_source_info *b, bool any_size) {
  bool same = a->rank == b->rank && a->type == b->type;
  // height and width are the transforms' business then, channels are not
  for (int i = any_size && a->rank == 3 ? 2 : 0; same && i < a->rank; i++) {
    same = a->dim[i] == b->dim[i];
  }
  return same;
}

brim_status brim_source_match(const brim_source *train, const brim_source_info *a,
                              const brim_source *eval, const brim_source_info *b, bool any_size,
                              const char *advice) {
  char one[NAME_BYTES], other[NAME_BYTES], left[TEXT_BYTES], right[TEXT_BYTES];
  name_set(train, one);
  name_set(eval, other);
  if (!same_shape(a, b, any_size)) {
    shape_text(a, left);
    shape_text(b, right);
    return brim_fail(BRIM_EINVAL,
                     "the training and the evaluation set have samples of different shape or type: "
                     "%s has %s, %s has %s%s",
                     one, left, other, right, advice);
  }
  if (a->target_dim != b->target_dim || (a->classes > 0) != (b->classes > 0)) {
    target_text(a, left);
    target_text(b, right);
    return brim_fail(
        BRIM_EINVAL,
        "the training and the evaluation set have different targets: %s has %s, %s has %s", one,
        left, other, right);
  }
  if (b->classes > a->classes) {
    const char *kind = train->table->name;
    bool says = strcmp(kind, "hdf5") == 0 || strcmp(kind, "idx") == 0 || strcmp(kind, "numpy") == 0;
    snprintf(left, sizeof left, brim_tr("; if that is intended, set dataset: %s(classes=%lld)"),
             kind, (long long)b->classes);
    return brim_fail(BRIM_EINVAL,
                     "the evaluation set has labels up to %" PRId64
                     ", the training set only up to %" PRId64 ": %s and %s%s",
                     b->classes - 1, a->classes - 1, other, one, says ? left : "");
  }
  // Text labels of sets that were opened apart, from two files, may be numbered in two ways.
  const char *const *ours = train->class_names ? train->class_names(train->state) : NULL;
  const char *const *theirs = eval->class_names ? eval->class_names(eval->state) : NULL;
  // Folders number their classes by name, as text is numbered. Other numbers are as their writer chose them.
  const brim_source *numbered = ours ? eval : train;
  if (a->classes > 0 && !ours != !theirs && strcmp(numbered->table->name, "folder") != 0) {
    brim_log_warn("data",
                  "%s has classes by name and %s by number: the numbers are taken for places in "
                  "the sorted names, "
                  "from 0",
                  ours ? one : other, ours ? other : one);
  }
  for (int64_t i = 0; ours && theirs && i < b->classes; i++) {
    if (strcmp(ours[i], theirs[i]) == 0) continue;
    brim_text_plain(ours[i], left, sizeof left);
    brim_text_plain(theirs[i], right, sizeof right);
    return brim_fail(BRIM_EINVAL,
                     "the training and the evaluation set number their classes differently: class "
                     "%" PRId64
                     " is '%s' in %s and '%s' in %s; put both sets into one file or one folder",
                     i, left, one, right, other);
  }
  return BRIM_OK;
}
