// Where the rows of a convolution's left operand begin in the image. Callers: cpu_conv_own.c and
// cpu_conv_weight.c.
#include "backend/cpu/cpu_conv_own.h"

void brim_cpu_conv_rows(const brim_cpu_conv_plan *p, const brim_cpu_conv_pass *pass,
                        const void *source, int64_t first, int64_t count, brim_cpu_conv_row *out) {
  int64_t j = first % pass->rows_w, i = first / pass->rows_w % pass->rows_h;
  int64_t n = first / (pass->rows_w * pass->rows_h);
  size_t image = (size_t)(p->src_h * p->src_w * p->src_c) * brim_cpu_size(p->v.type);
  for (int64_t k = 0; k < count; k++) {
    int64_t dh = i * p->dst_step + pass->first_h, dw = j * p->dst_step + pass->first_w;
    out[k] = (brim_cpu_conv_row){.image = (const char *)source + (size_t)n * image,
                                 .h = i * p->src_step,
                                 .w = j * p->src_step,
                                 .dst = ((n * p->dst_h + dh) * p->dst_w + dw) * p->dst_c};
    if (++j < pass->rows_w) continue;
    j = 0;
    if (++i < pass->rows_h) continue;
    i = 0;
    n++;
  }
}
