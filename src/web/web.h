// The files of web/ (style sheets, scripts), embedded in the program when it is built, so that a
// page is one file and needs no network. Callers: the ui room for the report.
#ifndef BRIM_WEB_H_
#define BRIM_WEB_H_

#include <stddef.h>

typedef struct brim_web_asset {
  const char *name;           // path under web/: "report/report.css"
  const unsigned char *data;  // a zero follows its end
  size_t size;
} brim_web_asset;

// NULL when there is none of that name.
const brim_web_asset *brim_web_find(const char *name);

#endif  // BRIM_WEB_H_
