// The report's part that the workload makes: its own tables, as below those of the terminal.
#include "ui/ui_report_int.h"

static void put_cell(const brim_view_column *column, bool head, const char *text, brim_str *out) {
  brim_str_append(out, head ? "<th" : "<td");
  if (column->left) brim_str_append(out, " class=\"text\"");
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, text);
  brim_str_append(out, head ? "</th>" : "</td>");
}

static void put_table(const brim_view *v, brim_str *out) {
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", v->title);
  brim_str_append(out, "><table class=\"own\"><thead><tr>");
  for (size_t c = 0; c < v->column_count; c++) {
    put_cell(&v->columns[c], true, v->columns[c].heading, out);
  }
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t r = 0; r < v->row_count; r++) {
    brim_str_append(out, (int)r == v->marked ? "<tr class=\"best\">" : "<tr>");
    for (size_t c = 0; c < v->column_count; c++) {
      put_cell(&v->columns[c], false, v->cells[r][c], out);
    }
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table></div>\n");
}

void brim_ui_report_views(const brim_ui_report_options *options, brim_str *out) {
  if (options->view_count == 0) return;
  brim_ui_put_section(out, "tables", brim_tr("Tables of the workload"), NULL);
  for (size_t i = 0; i < options->view_count; i++) {
    const brim_view *v = &options->views[i];
    brim_ui_put(out, "h3", v->title);
    brim_str_append_char(out, '\n');
    put_table(v, out);
    if (v->note[0]) brim_ui_put(out, "p", v->note);
  }
  brim_str_append(out, "</section>\n");
}
