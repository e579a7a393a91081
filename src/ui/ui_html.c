// HTML that every page needs: escaped text, elements, embedded assets, the head. Callers: the
// report (ui_report*.c, ui_chart*.c) and the replay (ui_replay*.c).
#include "ui/ui_report_int.h"
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
        // Control characters have no place in HTML or XML.
        brim_str_append_char(out, (unsigned char)*text < 0x20 && *text != '\n' ? ' ' : *text);
    }
  }
}

void brim_ui_put(brim_str *out, const char *tag, const char *text) {
  brim_str_printf(out, "<%s>", tag);
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
  if (hint && hint[0]) {
    brim_str_append(out, "<p class=\"hint\">");
    brim_ui_escape_html(out, hint);
    brim_str_append(out, "</p>");
  }
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

void brim_ui_put_asset(const char *tag, const char *name, brim_str *out) {
  const brim_web_asset *asset = brim_web_find(name);
  if (!asset) return;  // it is in this program, or the build is broken, which a test would show
  brim_str_printf(out, "<%s>\n", tag);
  brim_str_append_n(out, (const char *)asset->data, asset->size);
  brim_str_printf(out, "</%s>\n", tag);
}

void brim_ui_put_head(const char *title, const char *const *styles, brim_str *out) {
  brim_str_append(out, "<!DOCTYPE html>\n<html lang=\"");
  // The language of the page as HTML names it: "ko" in Korean.
  brim_ui_escape_html(out, brim_tr("en"));
  brim_str_append(out,
                  "\">\n<head>\n<meta charset=\"utf-8\" />\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n"
                  // Nothing is fetched from anywhere, whatever a record's texts say.
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
                  "base-uri 'none'; form-action 'none'\" />\n"
                  "<link rel=\"icon\" href=\"data:,\" />\n");
  brim_ui_put(out, "title", title);
  brim_str_append_char(out, '\n');
  for (; *styles; styles++) brim_ui_put_asset("style", *styles, out);
  brim_str_append(out, "</head>\n");
}
