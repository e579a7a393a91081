// The report read by a browser: headless Chromium opens a copy of it from disk, in a frame of a
// phone's width and alone, with a script of the test's added that uses the page as a person would
// and says what it saw. Its console must stay silent and it must ask for nothing but the files.
#include "chromium.h"
#include "report_results.h"

// Runs after the page's own script. What it finds goes to the frame's parent, or into the page.
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

// The whole of what a person does, on a phone's width.
static void test_used(void **state) {
  (void)state;
  static brim_result list[GPU_RESULTS];
  brim_ui_report_options how = {.command = "brim bench <b>x</b>", .picks = make_gpu(list)};
  brim_str page;
  brim_str_init(&page);
  strcpy(list[0].host, "<script>console.log('no')</script>");
  assert_ok(brim_ui_report(&how, list, GPU_RESULTS, &page));
  write_text("report.html", page.data);
  write_probe("probe.html", page.data, probe);
  write_text("frame.html", frame);
  char *text = open_page("frame.html");
  silent(text);
  contains(text, "\"address\":\"r55 descending\"");  // the slowest step: from the address
  contains(text, "\"down\":\"r83 r167 descending\"");
  contains(text, "\"one\":1");
  contains(text, "\"bottom\":\"failed\"");
  contains(text, "\"up\":\"r0 ascending\"");
  contains(text, "\"still\":\"failed\"");  // unknown stays below, either way
  contains(text, "\"bytes\":\"r13\"");     // 176.6 GiB is more than 908.2 MiB
  contains(text, "\"same\":true");         // drawn anew it is what was there
  contains(text, "\"map\":\"Precision \\\\ Workers 103,799\"");
  contains(text, "\"swap\":\"num_workers\"");
  contains(text, "\"ladder\":\"13 %\"");
  contains(text, "\"groups\":1");
  contains(text, "\"tip\":\"Batch 1\"");
  contains(text, "\"fits\":true");     // the page does not scroll sideways
  contains(text, "\"scrolls\":true");  // the table does, in its box
  contains(text, "\"fetched\":0");
  brim_free(text);
  brim_str_deinit(&page);
}

// As it is, on a screen's width: what the reader sees is in it.
static void test_read(void **state) {
  (void)state;
  brim_result list[CPU_RESULTS];
  brim_ui_report_options how = {.command = "brim bench", .picks = make_cpu(list)};
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
  // the fastest is on top
  assert_non_null(strstr(text, "id=\"r13\""));
  assert_true(strstr(text, "id=\"r13\"") < strstr(text, "id=\"r0\""));
  brim_free(text);
  brim_str_deinit(&page);
}

// A console that says something is heard: else the other tests would hold whatever it said.
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
      cmocka_unit_test(test_heard),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
