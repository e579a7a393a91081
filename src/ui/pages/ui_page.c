// Elements and parts that HTML pages share.

#include "ui/pages/ui_pages.h"

#include <stdio.h>
#include <string.h>

#include "web/web.h"

void brim_ui_escape_html(brim_str *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
      case '&':
        brim_str_append(out, "&amp;");
        break;
      case '<':
        brim_str_append(out, "&lt;");
        break;
      case '>':
        brim_str_append(out, "&gt;");
        break;
      case '"':
        brim_str_append(out, "&quot;");
        break;
      case '\'':
        brim_str_append(out, "&#39;");
        break;
      default:
        // HTML and XML forbid control characters: write a space.
        brim_str_append_char(out, (unsigned char)*text < 0x20 && *text != '\n' ? ' ' : *text);
    }
  }
}

void brim_ui_put(brim_str *out, const char *tag, const char *text) {
  brim_str_printf(out, "<%s>", tag);
  brim_ui_escape_html(out, text);
  brim_str_printf(out, "</%s>", tag);
}

void brim_ui_put_class(brim_str *out, const char *tag, const char *kind, const char *text) {
  brim_str_printf(out, "<%s class=\"%s\">", tag, kind);
  brim_ui_escape_html(out, text);
  brim_str_printf(out, "</%s>", tag);
}

void brim_ui_put_attribute(brim_str *out, const char *name, const char *value) {
  brim_str_printf(out, " %s=\"", name);
  brim_ui_escape_html(out, value);
  brim_str_append_char(out, '"');
}

void brim_ui_put_section(brim_str *out, const char *id, const char *title, const char *hint) {
  brim_str_printf(out, "<section id=\"%s\">", id);
  brim_ui_put(out, "h2", title);
  if (hint && hint[0]) brim_ui_put_class(out, "p", "hint", hint);
  brim_str_append_char(out, '\n');
}

void brim_ui_put_pair(brim_str *out, const char *name, const char *value) {
  if (!value[0]) return;
  brim_ui_put(out, "dt", name);
  brim_ui_put(out, "dd", value);
  brim_str_append_char(out, '\n');
}

void brim_ui_put_command(brim_str *out, const char *command) {
  if (!command || !command[0]) return;
  brim_ui_put(out, "h3", brim_tr("Command line"));
  brim_str_append(out, "<pre><code>");
  brim_ui_escape_html(out, command);
  brim_str_append(out, "</code></pre>\n");
}

static void put_asset(const char *name, brim_str *out) {
  const brim_web_asset *asset = brim_web_find(name);
  // Tests check that no asset is missing.
  if (asset) brim_str_append_n(out, (const char *)asset->data, asset->size);
}

void brim_ui_put_head(const char *title, const char *const *styles, brim_str *out) {
  brim_str_append(out, "<!DOCTYPE html>\n<html lang=\"");
  // The translation of "en" is HTML's code of the page's language: "ko" in Korean.
  brim_ui_escape_html(out, brim_tr("en"));
  brim_str_append(
      out,
      "\">\n<head>\n<meta charset=\"utf-8\" />\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n"
      // The policy stops the page from fetching anything, even if a text of a record tries to.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
      "base-uri 'none'; form-action 'none'\" />\n"
      "<link rel=\"icon\" href=\"data:,\" />\n");
  brim_ui_put(out, "title", title);
  brim_str_append_char(out, '\n');
  for (; *styles; styles++) {
    brim_str_append(out, "<style>\n");
    put_asset(*styles, out);
    brim_str_append(out, "</style>\n");
  }
  brim_str_append(out, "</head>\n");
}

void brim_ui_put_scripts(const char *const *names, brim_str *out) {
  const char *common = "page.js";
  for (; *names; names++, common = NULL) {
    brim_str_append(out, "<script>\n");
    if (common) put_asset(common, out);
    put_asset(*names, out);
    brim_str_append(out, "</script>\n");
  }
}

void brim_ui_put_nav(const brim_str *body, const brim_ui_link *links, size_t count, brim_str *out) {
  brim_str_append(out, "<nav>");
  for (size_t i = 0; i < count; i++) {
    char section[48];
    snprintf(section, sizeof section, "<section id=\"%s\">", links[i].id);
    if (!strstr(body->data, section)) continue;
    brim_str_printf(out, "<a href=\"#%s\">", links[i].id);
    brim_ui_escape_html(out, links[i].text);
    brim_str_append(out, "</a>");
  }
  brim_str_append(out, "</nav>\n");
}

brim_status brim_ui_put_data(const char *id, json_t *root, brim_str *out) {
  char *text = NULL;
  brim_status status = root ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a page");
  if (!status) status = brim_json_dump(root, 0, &text);
  if (!status) {
    brim_str_printf(out, "<script type=\"application/json\" id=\"%s\">", id);
    for (const char *p = text; *p; p += strcspn(p, "<")) {  // a '<' could end the element
      if (*p == '<') brim_str_append(out, "\\u003c"), p++;
      brim_str_append_n(out, p, strcspn(p, "<"));
    }
    brim_str_append(out, "</script>\n");
  }
  brim_free(text);
  json_decref(root);
  return status;
}
