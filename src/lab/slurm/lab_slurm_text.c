// What Slurm's commands print, read with suspicion: any line may be cut, or of another program.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/slurm/lab_slurm.h"

brim_slurm_state brim_slurm_state_of(const char *word) {
  static const struct {
    const char *name;
    brim_slurm_state state;
  } known[] = {
      {"PENDING", BRIM_SLURM_WAITING},       {"REQUEUED", BRIM_SLURM_WAITING},
      {"REQUEUE_HOLD", BRIM_SLURM_WAITING},  {"REQUEUE_FED", BRIM_SLURM_WAITING},
      {"SPECIAL_EXIT", BRIM_SLURM_WAITING},  {"RESV_DEL_HOLD", BRIM_SLURM_WAITING},
      {"CONFIGURING", BRIM_SLURM_RUNNING},   {"RUNNING", BRIM_SLURM_RUNNING},
      {"COMPLETING", BRIM_SLURM_RUNNING},    {"SUSPENDED", BRIM_SLURM_RUNNING},
      {"STOPPED", BRIM_SLURM_RUNNING},       {"SIGNALING", BRIM_SLURM_RUNNING},
      {"STAGE_OUT", BRIM_SLURM_RUNNING},     {"RESIZING", BRIM_SLURM_RUNNING},
      {"COMPLETED", BRIM_SLURM_DONE},        {"FAILED", BRIM_SLURM_FAILED},
      {"REVOKED", BRIM_SLURM_FAILED},        {"CANCELLED", BRIM_SLURM_CANCELLED},
      {"TIMEOUT", BRIM_SLURM_TIMEOUT},       {"DEADLINE", BRIM_SLURM_TIMEOUT},
      {"PREEMPTED", BRIM_SLURM_PREEMPTED},   {"NODE_FAIL", BRIM_SLURM_NODE_FAILED},
      {"BOOT_FAIL", BRIM_SLURM_NODE_FAILED}, {"OUT_OF_MEMORY", BRIM_SLURM_NO_MEMORY},
  };
  size_t n = strcspn(word, " +\n");
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strlen(known[i].name) == n && memcmp(known[i].name, word, n) == 0) return known[i].state;
  }
  return BRIM_SLURM_UNKNOWN;
}

//---------------------------------- rows ----------------------------------

enum { FIELDS = 6, LONGEST = 4096 };

// The line in place as its fields, by '|'; the last one has the rest.
static size_t split(char *line, char *fields[FIELDS]) {
  size_t n = 0;
  for (char *at = line; at && n < FIELDS; n++) {
    fields[n] = at;
    at = n + 1 < FIELDS ? strchr(at, '|') : NULL;
    if (at) *at++ = '\0';
  }
  return n;
}

static bool is_number(const char *text, size_t most) {
  size_t n = strspn(text, "0123456789");
  return n > 0 && n < most && text[n] == '\0';
}

static void copy(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text);
  for (char *at = out; *at; at++) {
    if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e) *at = '?';
  }
}

typedef enum line_kind { LINE_ROW, LINE_OTHER_JOB, LINE_BAD } line_kind;

// squeue: job|index|state|node|name|reason. sacct: job_index|name|state|exit code|node.
static line_kind read_line(char *line, bool account, brim_slurm_row *row) {
  char *f[FIELDS] = {0};
  size_t n = split(line, f);
  if (n != (account ? 5u : 6u)) return LINE_BAD;
  char *index = account ? strchr(f[0], '_') : f[1];
  if (account && index) *index++ = '\0';
  if (!is_number(f[0], BRIM_SLURM_JOB)) return LINE_BAD;
  if (!index || strcmp(index, "N/A") == 0 || index[0] == '[') return LINE_OTHER_JOB;
  if (!is_number(index, 12)) return LINE_BAD;
  *row = (brim_slurm_row){.index = strtoll(index, NULL, 10)};
  row->state = brim_slurm_state_of(f[2]);
  if (row->state == BRIM_SLURM_UNKNOWN) return LINE_BAD;
  copy(row->job, sizeof row->job, f[0]);
  copy(row->name, sizeof row->name, f[account ? 1 : 4]);
  copy(row->word, sizeof row->word, f[2]);
  row->word[strcspn(row->word, " +")] = '\0';
  copy(row->node, sizeof row->node, f[account ? 4 : 3]);
  copy(row->reason, sizeof row->reason, f[account ? 3 : 5]);
  return LINE_ROW;
}

size_t brim_slurm_rows(const char *text, bool account, brim_slurm_row_fn fn, void *ctx) {
  size_t bad = 0;
  while (*text) {
    char line[LONGEST];
    size_t n = strcspn(text, "\n");
    bool whole = text[n] == '\n';  // an answer that was cut has a last line without its end
    snprintf(line, sizeof line, "%.*s", (int)(n < LONGEST ? n : LONGEST - 1), text);
    text += n + whole;
    if (line[strspn(line, " \t\r")] == '\0') continue;
    brim_slurm_row row;
    line_kind kind = whole && n < LONGEST ? read_line(line, account, &row) : LINE_BAD;
    if (kind == LINE_ROW) fn(ctx, &row);
    if (kind == LINE_BAD) bad++;
  }
  return bad;
}

//---------------------------------- single values ----------------------------------

bool brim_slurm_job_of(const char *text, char out[BRIM_SLURM_JOB]) {
  text += strspn(text, " \t\r\n");
  size_t n = strspn(text, "0123456789");
  char end = text[n];
  out[0] = '\0';
  if (n == 0 || n >= BRIM_SLURM_JOB || (end && end != ';' && end != '\n' && end != '\r')) {
    return false;
  }
  snprintf(out, BRIM_SLURM_JOB, "%.*s", (int)n, text);
  return true;
}

int64_t brim_slurm_config_value(const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *line = text; line && *line;) {
    const char *at = line + strspn(line, " \t");
    if (strncmp(at, key, n) == 0) {
      at += n;
      at += strspn(at, " \t");
      if (*at == '=') return strtoll(at + 1, NULL, 10);
    }
    line = strchr(line, '\n');
    if (line) line++;
  }
  return 0;
}

enum { MOST_NODES = 1 << 24 };  // in a line of sinfo

int64_t brim_slurm_nodes_of(const char *text, char name[BRIM_SLURM_NODE]) {
  int64_t total = 0;
  name[0] = '\0';
  for (const char *line = text; line && *line;) {
    char *end;
    long long count = strtoll(line, &end, 10);
    if (count > 0 && count <= MOST_NODES && *end == '|') {
      total += count;
      snprintf(name, BRIM_SLURM_NODE, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
    }
    line = strchr(line, '\n');
    if (line) line++;
  }
  if (total != 1) name[0] = '\0';
  return total;
}

bool brim_slurm_has_mpi(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *at = text; (at = strstr(at, name)) != NULL; at += n) {
    bool before = at == text || isspace((unsigned char)at[-1]) || at[-1] == ',';
    bool behind = !at[n] || isspace((unsigned char)at[n]) || at[n] == ',';
    if (before && behind) return true;
  }
  return false;
}

// minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds]
int64_t brim_slurm_seconds(const char *text) {
  long long part[4] = {0};
  int n = 0;
  bool days = false;
  if (!text || !isdigit((unsigned char)text[0])) return -1;
  for (const char *at = text;; at++) {
    char *end;
    if (!isdigit((unsigned char)*at) || n == 4) return -1;
    part[n++] = strtoll(at, &end, 10);
    if (part[n - 1] > 1000000) return -1;
    at = end;
    if (*at == '\0') break;
    if (*at == '-' && n == 1) {
      days = true;
    } else if (*at != ':') {
      return -1;
    }
  }
  if (days) return part[0] * 86400 + part[1] * 3600 + part[2] * 60 + part[3];
  if (n == 1) return part[0] * 60;
  if (n == 2) return part[0] * 60 + part[1];
  return n == 3 ? part[0] * 3600 + part[1] * 60 + part[2] : -1;
}
