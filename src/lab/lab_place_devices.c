// Texts that name devices, and the list of GPUs as CUDA would count them.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_place_int.h"

//---------------------------------- the machine ----------------------------------

static bool is_number(const char *text, int64_t *out) {
  return isdigit((unsigned char)text[0]) && brim_parse_i64(text, out);
}

// The GPU of the machine that an entry of CUDA_VISIBLE_DEVICES names; < 0: none, or several.
static int find_listed(const brim_gpu_listed *all, size_t count, const char *entry) {
  int64_t number = 0;
  if (is_number(entry, &number)) return number < (int64_t)count ? (int)number : -1;
  if (!brim_str_starts(entry, "GPU-") && !brim_str_starts(entry, "MIG-")) return -1;
  int found = -1;
  for (size_t i = 0; i < count; i++) {
    if (!brim_str_starts(all[i].uuid, entry)) continue;
    if (found >= 0) return -1;
    found = (int)i;
  }
  return found;
}

static void add_card(brim_lab_place *place, const brim_gpu_listed *gpu) {
  for (int i = 0; i < place->card_count; i++) {
    if (strcmp(place->cards[i].uuid, gpu->uuid) == 0) return;
  }
  if (place->card_count >= BRIM_LAB_PLACE_GPUS) return;
  brim_lab_place_card *card = &place->cards[place->card_count];
  card->index = place->card_count++;
  card->lock_fd = -1;
  snprintf(card->uuid, sizeof card->uuid, "%s", gpu->uuid);
  snprintf(card->name, sizeof card->name, "%.63s", gpu->name);
}

// As CUDA reads it: entries after the first that names no GPU do not count.
static void add_visible(brim_lab_place *place, const brim_gpu_listed *all, size_t count) {
  const char *at = place->options.visible;
  while (*at) {
    char entry[80];
    size_t n = strcspn(at, ",");
    int size = snprintf(entry, sizeof entry, "%.*s", (int)(n < sizeof entry ? n : 0), at);
    char *start = entry;
    while (*start == ' ') start++;
    for (char *end = entry + (size > 0 ? size : 0); end > start && end[-1] == ' ';) *--end = '\0';
    int found = find_listed(all, count, start);
    if (found < 0) return;
    add_card(place, &all[found]);
    at += n + (at[n] == ',');
  }
}

brim_status brim_lab_place_list(brim_lab_place *place) {
  if (!place->options.monitor) return BRIM_OK;
  brim_gpu_listed *all = NULL;
  size_t count = 0;
  brim_status status = brim_gpu_list(place->options.monitor, &all, &count);
  if (status == BRIM_EUNSUPPORTED) {
    brim_log_warn("lab", "%s", brim_status_detail());
    return BRIM_OK;
  }
  if (status) return status;
  place->cards = (brim_lab_place_card *)brim_calloc(count ? count : 1, sizeof *place->cards);
  if (!place->cards) {
    brim_free(all);
    return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
  }
  if (place->options.visible) {
    add_visible(place, all, count);
  } else {
    for (size_t i = 0; i < count; i++) add_card(place, &all[i]);
  }
  brim_free(all);
  return BRIM_OK;
}

//---------------------------------- texts ----------------------------------

static brim_status fail_missing(const brim_lab_place *place, const char *entry) {
  if (place->card_count == 0) {
    return brim_fail(BRIM_EDEVICE,
                     "cannot use device %s: this machine has no NVIDIA GPU; run with --device cpu",
                     entry);
  }
  return brim_fail(BRIM_EDEVICE, "cannot use device %s: this machine has GPUs 0 to %d", entry,
                   place->card_count - 1);
}

static void every_card(const brim_lab_place *place, brim_lab_place_mask *out) {
  for (int i = 0; i < place->card_count; i++) out->cards |= (uint64_t)1 << i;
}

static brim_status parse_uuid(const brim_lab_place *place, const char *entry,
                              brim_lab_place_mask *out) {
  int found = -1;
  for (int i = 0; i < place->card_count; i++) {
    if (!brim_str_starts(place->cards[i].uuid, entry)) continue;
    if (found >= 0) {
      return brim_fail(BRIM_EINVAL, "cannot use device %s: several GPUs begin with it", entry);
    }
    found = i;
  }
  if (found < 0) return fail_missing(place, entry);
  out->cards |= (uint64_t)1 << found;
  return BRIM_OK;
}

static brim_status parse_entry(const brim_lab_place *place, const char *entry,
                               brim_lab_place_mask *out) {
  int64_t number = 0;
  if (strcmp(entry, "cpu") == 0 || strcmp(entry, "ref") == 0) {
    out->cpu = true;
    return BRIM_OK;
  }
  if (strcmp(entry, "auto") == 0) {
    every_card(place, out);
    out->cpu = out->cpu || place->card_count == 0;
    return BRIM_OK;
  }
  if (strcmp(entry, "cuda") == 0) {
    every_card(place, out);
    return place->card_count > 0 ? BRIM_OK : fail_missing(place, entry);
  }
  const char *digits = brim_str_starts(entry, "cuda:") ? entry + 5 : entry;
  if (is_number(digits, &number)) {
    if (number >= place->card_count) return fail_missing(place, entry);
    out->cards |= (uint64_t)1 << number;
    return BRIM_OK;
  }
  if (brim_str_starts(entry, "GPU-") || brim_str_starts(entry, "MIG-")) {
    return parse_uuid(place, entry, out);
  }
  return brim_fail(
      BRIM_EINVAL,
      "cannot use device %s; give auto, cpu, cuda, cuda:N, N, a UUID, or a list of them", entry);
}

brim_status brim_lab_place_parse(const brim_lab_place *place, const char *text,
                                 brim_lab_place_mask *out) {
  *out = (brim_lab_place_mask){0};
  const char *at = text && *text ? text : "auto";
  while (*at) {
    char entry[80];
    at += strspn(at, " ,[]");
    size_t n = strcspn(at, " ,[]");
    if (n == 0) break;
    snprintf(entry, sizeof entry, "%.*s", (int)(n < sizeof entry ? n : sizeof entry - 1), at);
    BRIM_TRY(parse_entry(place, entry, out));
    at += n;
  }
  if (!out->cpu && !out->cards) return brim_fail(BRIM_EINVAL, "the list of devices is empty");
  return BRIM_OK;
}
