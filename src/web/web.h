// The files of web/ (style sheets, scripts), embedded in the program when it is built, so that a page is one file
// and needs no network. Caller: the ui room.
#ifndef BRIM_WEB_H_
#define BRIM_WEB_H_

#include <stddef.h>

typedef struct brim_web_asset {
  const char *name;           // path below web/: "report/report.css"
  const unsigned char *data;  // a zero byte follows the last one
  size_t size;
} brim_web_asset;

// Returns NULL if no file has this name.
const brim_web_asset *brim_web_find(const char *name);

#endif  // BRIM_WEB_H_
