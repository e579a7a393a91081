// Tables that a workload makes itself, below those of a sweep.
#include "ui/ui_int.h"

static brim_status put_view(const brim_term *term, const brim_view *v, brim_str *out) {
  brim_ui_column columns[BRIM_VIEW_COLUMNS];
  brim_ui_table table;
  for (size_t i = 0; i < v->column_count; i++) {
    const brim_view_column *c = &v->columns[i];
    columns[i] = (brim_ui_column){.header = c->heading,
                                  .align = c->left ? BRIM_UI_LEFT : BRIM_UI_RIGHT,
                                  .priority = c->drop,
                                  .min_width = c->least};
  }
  brim_ui_table_init(&table, columns, v->column_count);
  for (size_t r = 0; r < v->row_count; r++) {
    brim_ui_style style = (int)r == v->marked ? BRIM_UI_BEST : BRIM_UI_PLAIN;
    for (size_t c = 0; c < v->column_count; c++) {
      brim_ui_table_add(&table, style, "%s", v->cells[r][c]);
    }
  }
  brim_ui_heading(out, term, v->title);
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  if (!v->note[0]) {
    brim_str_append_char(out, '\n');
    return status;
  }
  if (v->whole_note) {
    brim_str_append(out, v->note);
  } else {
    brim_ui_wrap(out, term, v->note, 0);
  }
  brim_str_append(out, "\n\n");
  return status;
}

brim_status brim_ui_views(const brim_term *term, const brim_view *views, size_t count,
                          brim_str *out) {
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count; i++) BRIM_TRY(put_view(term, &views[i], out));
  return brim_str_status(out);
}
