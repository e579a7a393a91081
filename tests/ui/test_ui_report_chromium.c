// The report read by a browser: headless Chromium opens a copy from disk, in a frame as wide as a phone and alone. A
// test script in the page uses it as a person would and reports what it finds. Its console must stay silent, and it may
// request only the files.
#include "chromium.h"
#include "report_results.h"

// Runs after the page's own script. Its findings go to the frame's parent, or into the page.
static const char probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var seen = {};\n"
    "  function rows(n) {\n"
    "    return Array.from(document.querySelectorAll('#all tbody tr')).slice(0, n)\n"
    "      .map(function (row) { return row.id; }).join(' ');\n"
    "  }\n"
    "  function head(key) {\n"
    "    return document.querySelector('#all th[data-key=' + key + '], #all th[data-knob=' + key "
    "+\n"
    "      ']');\n"
    "  }\n"
    "  function choose(id, value) {\n"
    "    var choice = document.getElementById(id);\n"
    "    choice.value = value;\n"
    "    choice.dispatchEvent(new Event('change'));\n"
    "  }\n"
    "  seen.address = rows(1) + ' ' + head('total').getAttribute('aria-sort');\n"
    "  head('rate').firstElementChild.click();\n"
    "  seen.down = rows(2) + ' ' + head('rate').getAttribute('aria-sort');\n"
    "  seen.one = document.querySelectorAll('#all th[aria-sort]').length;\n"
    "  var all = document.querySelectorAll('#all tbody tr');\n"
    "  seen.bottom = all[all.length - 1].className;\n"
    "  head('rate').firstElementChild.click();\n"
    "  seen.up = rows(1) + ' ' + head('rate').getAttribute('aria-sort');\n"
    "  seen.still = all.length && document.querySelectorAll('#all tbody tr')[all.length - 1]\n"
    "    .className;\n"
    "  head('memory').firstElementChild.click();\n"
    "  seen.bytes = rows(1);\n"
    "  var map = document.getElementById('heat-map'), before = map.textContent;\n"
    "  choose('heat-metric', 'memory'); choose('heat-metric', 'rate');\n"
    "  seen.same = map.textContent === before.replace(/\\n/g, '');\n"
    "  choose('heat-row', 'precision');\n"
    "  seen.map = map.rows[0].cells[0].textContent + ' ' + map.rows[2].cells[3].textContent;\n"
    "  choose('heat-column', 'precision');\n"
    "  seen.swap = document.getElementById('heat-row').value;\n"
    "  choose('heat-row', 'batch_size');\n"
    "  seen.oom = map.textContent.indexOf('OOM') >= 0;\n"
    "  choose('ladder-row', '3');\n"
    "  seen.ladder = document.querySelector('.rung[data-key=sm] .v').textContent;\n"
    "  choose('stack-group', '2');\n"
    "  seen.groups = document.querySelectorAll('.sg:not([hidden])').length;\n"
    "  var svg = document.querySelector('.chart > svg'), point = svg.querySelector('.pt');\n"
    "  var at = point.getBoundingClientRect();\n"
    "  svg.dispatchEvent(new PointerEvent('pointermove',\n"
    "    { clientX: at.left + 1, clientY: at.top + 1 }));\n"
    "  seen.tip = document.getElementById('tip').textContent.split(',')[0];\n"
    "  var page = document.documentElement, box = document.querySelector('.tall');\n"
    "  seen.fits = page.clientWidth >= page.scrollWidth && innerWidth === 390;\n"
    "  seen.scrolls = box.scrollWidth > box.clientWidth;\n"
    "  seen.fetched = performance.getEntriesByType('resource').length;\n"
    "  var text = JSON.stringify(seen);\n"
    "  if (parent !== window) parent.postMessage(text, '*');\n"
    "  else document.body.appendChild(document.createElement('output')).textContent = text;\n"
    "});\n"
    "</script>\n";

static const char frame[] =
    "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"></head>"
    "<body><iframe width=\"390\" height=\"844\" src=\"probe.html#sort=-total\"></iframe>"
    "<output id=\"seen\"></output><script>\n"
    "addEventListener('message', function (event) {\n"
    "  document.getElementById('seen').textContent = event.data;\n"
    "});\n"
    "</script></body></html>\n";

static void contains(const char *text, const char *part) {
  const char *seen = strstr(text, "{\"address\"");
  if (!strstr(text, part)) fail_msg("'%s' is not there: %.1500s", part, seen ? seen : text);
}

// All actions of a person, at a phone's width.
static void test_used(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  const brim_recommendation picks = make_gpu(list);
  brim_ui_report_options how = {.command = "brim bench <b>x</b>", .picks = &picks};
  brim_str page;
  brim_str_init(&page);
  strcpy(list[0].host, "<script>console.log('no')</script>");
  assert_ok(brim_ui_report(&how, list, GPU_RESULTS, &page));
  write_text("report.html", page.data);
  write_probe("probe.html", page.data, probe);
  write_text("frame.html", frame);
  char *text = open_page("frame.html");
  silent(text);
  contains(text, "\"address\":\"r55 descending\"");  // the slowest step, from the address
  contains(text, "\"down\":\"r83 r167 descending\"");
  contains(text, "\"one\":1");
  contains(text, "\"bottom\":\"failed\"");
  contains(text, "\"up\":\"r0 ascending\"");
  contains(text, "\"still\":\"failed\"");  // unknown values sort last, in either direction
  contains(text, "\"bytes\":\"r13\"");     // 176.6 GiB is more than 908.2 MiB
  contains(text, "\"same\":true");         // drawing again gives the same
  contains(text, "\"map\":\"Precision \\\\ Workers 103,799\"");
  contains(text, "\"swap\":\"num_workers\"");
  // a cell where nothing fits keeps its text when it is drawn again
  contains(text, "\"oom\":true");
  contains(text, "\"ladder\":\"13 %\"");
  contains(text, "\"groups\":1");
  contains(text, "\"tip\":\"Batch 1\"");
  contains(text, "\"fits\":true");     // the page does not scroll sideways
  contains(text, "\"scrolls\":true");  // the table scrolls in its box
  contains(text, "\"fetched\":0");
  brim_free(text);
  brim_str_deinit(&page);
}

// Reads the page unchanged, at a screen's width: every text for the reader is in it.
static void test_read(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  const brim_recommendation picks = make_cpu(list);
  brim_ui_report_options how = {.command = "brim bench", .picks = &picks};
  brim_str page;
  brim_str_init(&page);
  assert_ok(brim_ui_report(&how, list, CPU_RESULTS, &page));
  write_text("cpu.html", page.data);
  char *text = open_page("cpu.html#sort=-rate");
  silent(text);
  contains(text, "class=\"scripted\"");
  contains(text, "Recommended for training");
  contains(text, "aria-sort=\"descending\"");
  contains(text, "mlp on 8,192 samples of 28x28 u8");
  // the fastest is in the first row
  assert_non_null(strstr(text, "id=\"r13\""));
  assert_true(strstr(text, "id=\"r13\"") < strstr(text, "id=\"r0\""));
  brim_free(text);
  brim_str_deinit(&page);
}

// Lists the texts of a chart that overlap each other, or that leave its frame.
static const char captions[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var bad = [], seen = 0, parts = ':scope > figcaption, .units > span, :scope > svg text, ' "
    "+\n"
    "    '.legend li, .note';\n"
    "  document.querySelectorAll('.chart').forEach(function (chart) {\n"
    "    var frame = chart.getBoundingClientRect(), texts = [];\n"
    "    chart.querySelectorAll(parts).forEach(function (one) {\n"
    "      var r = one.getBoundingClientRect(), name = one.textContent;\n"
    "      if (!one.getClientRects().length) return;\n"
    "      seen++;\n"
    "      if (r.left < frame.left - 1 || r.right > frame.right + 1) bad.push(name + ' is out');\n"
    "      texts.forEach(function (other) {\n"
    "        var q = other.box;\n"
    "        if (Math.min(r.right, q.right) - Math.max(r.left, q.left) > 0.5 &&\n"
    "            Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 0.5) {\n"
    "          bad.push(name + ' is over ' + other.name);\n"
    "        }\n"
    "      });\n"
    "      texts.push({ box: r, name: name });\n"
    "    });\n"
    "  });\n"
    "  var page = document.documentElement;\n"
    "  if (page.scrollWidth > page.clientWidth) bad.push('it scrolls sideways');\n"
    "  if (seen < 30) bad.push(seen + ' texts');\n"
    "  parent.postMessage('[' + window.name + ': ' + (bad.join('; ') || 'fine') + ']', '*');\n"
    "});\n"
    "</script>\n";

static void make_captions(const char *name, bool gpu) {
  static brim_result list[GPU_RESULTS];
  brim_recommendation picks = gpu ? make_gpu(list) : make_cpu(list);
  picks.provisional = true;
  picks.now = 0;
  picks.gain = (brim_interval){1.43, 1.31, 1.52};
  picks.beside = 1;
  picks.more = (brim_interval){1.2, 1.1, 1.3};
  strcpy(picks.beside_text, "but batch_size 1024 changes learning");
  strcpy(picks.reason, "precision bf16 is at least 1.3x faster than fp32");
  brim_ui_report_options how = {.picks = &picks};
  // a long text about memory far above everything drawn
  for (size_t i = 0; i < CPU_RESULTS && !gpu; i++) list[i].free_bytes = 250.6 * (1 << 30);
  brim_str page;
  brim_str_init(&page);
  assert_ok(brim_ui_report(&how, list, gpu ? GPU_RESULTS : CPU_RESULTS, &page));
  write_probe(name, page.data, captions);
  brim_str_deinit(&page);
}

// No text of a chart touches another: on a phone, a tablet and a screen, in both languages.
static void test_captions(void **state) {
  (void)state;
  static const char *const pages[] = {"en-cpu", "en-gpu", "ko-cpu", "ko-gpu"};
  static const int widths[] = {320, 390, 700, 1200};
  brim_str frames;
  brim_str_init(&frames);
  brim_str_append(&frames,
                  "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><link rel=\"icon\" "
                  "href=\"data:,\"></head><body><output id=\"seen\"></output><script>\n"
                  "addEventListener('message', function (event) {\n"
                  "  document.getElementById('seen').textContent += event.data;\n"
                  "});\n</script>\n");
  for (size_t i = 0; i < 4; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s.html", pages[i]);
    brim_msg_set_language(i < 2 ? "en" : "ko");
    make_captions(name, i % 2);
    brim_msg_set_language("en");
    for (size_t k = 0; k < 4; k++) {
      brim_str_printf(&frames,
                      "<iframe name=\"%s-%d\" width=\"%d\" height=\"900\" src=\"%s\"></iframe>\n",
                      pages[i], widths[k], widths[k], name);
    }
  }
  brim_str_append(&frames, "</body></html>\n");
  assert_ok(brim_str_status(&frames));
  write_text("captions.html", frames.data);
  brim_str_deinit(&frames);
  char *text = open_page("captions.html");
  silent(text);
  const char *seen = strstr(text, "<output id=\"seen\">");
  assert_non_null(seen);
  for (size_t i = 0; i < 16; i++) {
    char part[48];
    snprintf(part, sizeof part, "[%s-%d: fine]", pages[i / 4], widths[i % 4]);
    if (!strstr(seen, part)) fail_msg("no '%s' in: %.3000s", part, seen);
  }
  brim_free(text);
}

// A message on the console is detected: otherwise the other tests could not fail.
static void test_heard(void **state) {
  (void)state;
  write_text("loud.html",
             "<!DOCTYPE html><html><body><script>nothing.there()</script></body></html>");
  char *text = open_page("loud.html");
  contains(text, "CONSOLE");
  contains(text, "nothing is not defined");
  brim_free(text);
}

int main(void) {
  open_browser();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_used),
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_captions),
      cmocka_unit_test(test_heard),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
