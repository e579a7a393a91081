// Inside the web room: the table that cmake/BrimEmbed.cmake writes.
#ifndef BRIM_WEB_INT_H_
#define BRIM_WEB_INT_H_

#include "web/web.h"

extern const brim_web_asset brim_web_assets[];
extern const size_t brim_web_asset_count;

#endif  // BRIM_WEB_INT_H_
