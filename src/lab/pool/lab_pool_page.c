// The dashboard: a page, its script and its style sheet, made from the files of web/ when the pool opens.
// They say nothing about the store, so no token is needed for them. The names of script and style sheet
// have a hash of their content: a browser keeps them for good.
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/base_sha256.h"
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"
#include "web/web.h"

enum { GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8, NAME_DIGITS = 16 };

// The licence of uPlot asks to be there wherever its code is.
static const char *const licence[] = {"uplot/LICENSE", NULL};
static const char *const scripts[] = {"uplot/uPlot.iife.min.js", "dashboard/text.js",
                                      "dashboard/base.js",       "dashboard/model.js",
                                      "dashboard/chart.js",      "dashboard/list.js",
                                      "dashboard/one.js",        "dashboard/views.js",
                                      "dashboard/main.js",       NULL};
static const char *const styles[] = {"uplot/uPlot.min.css", "dashboard/dashboard.css", NULL};

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The script fills the rest in, in the reader's language.
static const char page[] =
    "<!DOCTYPE html>\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>brim</title>\n"
    "<link rel=\"icon\" href=\"data:image/svg+xml,%%3Csvg xmlns='http://www.w3.org/2000/svg' "
    "viewBox='0 0 16 "
    "16'%%3E%%3Crect width='16' height='16' rx='3' fill='%%232b6ecf'/%%3E%%3Cpath d='M3 11l3-4 3 2 "
    "4-5' "
    "stroke='white' stroke-width='2' fill='none'/%%3E%%3C/svg%%3E\">\n"
    "<link rel=\"stylesheet\" href=\"%s\">\n"
    "<script defer src=\"%s\"></script>\n"
    "</head>\n"
    "<body><noscript>This page needs JavaScript. brim sweep status shows the pool in a "
    "terminal.</noscript></body>\n"
    "</html>\n";

//---------------------------------- making ----------------------------------

static brim_status join(const char *const *names, brim_str *out) {
  for (; *names; names++) {
    const brim_web_asset *asset = brim_web_find(*names);
    if (!asset) return brim_fail(BRIM_ENOENT, "the program has no %s", *names);
    brim_str_append_n(out, (const char *)asset->data, asset->size);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out) ? brim_fail(BRIM_ENOMEM, "out of memory for the page") : BRIM_OK;
}

static brim_status compress_text(const brim_str *in, brim_str *out) {
  z_stream z = {0};
  char block[16384];
  int result;
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the page");
  }
  union {
    const char *in;
    Bytef *out;
  } bytes = {in->data};  // zlib does not write to it
  z.next_in = bytes.out;
  z.avail_in = (uInt)in->len;
  do {
    z.next_out = (Bytef *)block;
    z.avail_out = sizeof block;
    result = deflate(&z, Z_FINISH);
    brim_str_append_n(out, block, sizeof block - z.avail_out);
  } while (result == Z_OK || result == Z_BUF_ERROR);
  deflateEnd(&z);
  bool good = result == Z_STREAM_END && !brim_str_status(out);
  return good ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the page");
}

// `name` and `ending` make its path; NULL: it is the page.
static brim_status finish(brim_pool_file *file, const char *name, const char *ending) {
  char hash[65];
  BRIM_TRY(compress_text(&file->plain, &file->gzip));
  brim_sha256_hex(file->plain.data, file->plain.len, hash);
  snprintf(file->hash, sizeof file->hash, "%.*s", NAME_DIGITS, hash);
  if (name) snprintf(file->path, sizeof file->path, "/assets/%s-%s.%s", name, file->hash, ending);
  return BRIM_OK;
}

brim_status brim_pool_page_init(brim_pool_page *p) {
  brim_pool_file *html = &p->files[0], *js = &p->files[1], *css = &p->files[2];
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    p->files[i] = (brim_pool_file){.path = "/"};
    brim_str_init(&p->files[i].plain);
    brim_str_init(&p->files[i].gzip);
  }
  html->type = "text/html; charset=utf-8";
  js->type = "text/javascript; charset=utf-8";
  css->type = "text/css; charset=utf-8";
  brim_str_append(&js->plain, "/* uPlot\n");
  BRIM_TRY(join(licence, &js->plain));
  brim_str_append(&js->plain, "*/\n");
  BRIM_TRY(join(scripts, &js->plain));
  BRIM_TRY(join(styles, &css->plain));
  BRIM_TRY(finish(js, "dashboard", "js"));
  BRIM_TRY(finish(css, "dashboard", "css"));
  brim_str_printf(&html->plain, page, css->path, js->path);
  if (brim_str_status(&html->plain)) return brim_fail(BRIM_ENOMEM, "out of memory for the page");
  return finish(html, NULL, NULL);
}

void brim_pool_page_deinit(brim_pool_page *p) {
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    brim_str_deinit(&p->files[i].plain);
    brim_str_deinit(&p->files[i].gzip);
  }
}

//---------------------------------- serving ----------------------------------

const brim_pool_file *brim_pool_page_find(const brim_pool_page *p, const char *path) {
  for (int i = 0; i < BRIM_POOL_FILES; i++) {
    if (strcmp(p->files[i].path, path) == 0) return &p->files[i];
  }
  return NULL;
}

// "gzip, deflate, br"; one with "gzip;q=0" gets it plain.
static bool takes_gzip(const brim_http_request *request) {
  const char *accepted = brim_http_header(request, "Accept-Encoding");
  const char *at = accepted ? strstr(accepted, "gzip") : NULL;
  return at && strncmp(at + 4, ";q=0", 4) != 0;
}

void brim_pool_page_serve(const brim_pool_file *file, const brim_http_request *request,
                          brim_http_reply *reply) {
  const char *known = brim_http_header(request, "If-None-Match");
  bool packed = takes_gzip(request), is_page = strcmp(file->path, "/") == 0;
  char tag[BRIM_POOL_HASH + 8];
  snprintf(tag, sizeof tag, "\"%s%s\"", file->hash, packed ? "-gz" : "");
  brim_http_reply_header(reply, "ETag", tag);
  brim_http_reply_header(reply, "Vary", "Accept-Encoding");
  brim_http_reply_header(reply, "Cache-Control",
                         is_page ? "no-cache" : "public, max-age=31536000, immutable");
  brim_http_reply_header(reply, "X-Content-Type-Options", "nosniff");
  brim_http_reply_header(reply, "Referrer-Policy", "no-referrer");
  brim_http_reply_header(reply, "Content-Security-Policy", policy);
  reply->type = file->type;
  if (known && strstr(known, tag)) {
    reply->status = 304;
    return;
  }
  if (packed) brim_http_reply_header(reply, "Content-Encoding", "gzip");
  reply->file = packed ? file->gzip.data : file->plain.data;
  reply->file_size = packed ? file->gzip.len : file->plain.len;
}
