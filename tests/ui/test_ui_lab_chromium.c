// The page of a store in a browser, in a frame as wide as a phone and on a screen: filters, sorting, ranges on axes,
// curves, one experiment; a store of 10,000. The console must stay silent and nothing may be fetched. Leaves pictures
// of both widths for people to look at.
#include "chromium.h"
#include "lab_experiments.h"
#include "ui/sweep/ui_sweep.h"

static const brim_ui_lab_options options = {
    .title = "rates", .place = "runs/rates", .command = "brim report", .now_s = 1790000100};

// Runs after the page's own scripts; its findings go to the frame's parent, or into the page.
static const char tools[] =
    "<script>\n"
    "var seen = {};\n"
    "function byId(id) { return document.getElementById(id); }\n"
    "function shown() { return byId('shown').textContent; }\n"
    "function rows(id) {\n"
    "  return Array.from(byId(id).querySelectorAll('tbody tr:not(.pad)')).map(function (row) {\n"
    "    return Array.from(row.cells).map(function (c) { return c.textContent; }).join('|'); });\n"
    "}\n"
    "function head(id, name) {\n"
    "  return Array.from(byId(id).querySelectorAll('th')).find(function (th) {\n"
    "    return th.textContent === name; });\n"
    "}\n"
    "function choose(id, value) {\n"
    "  byId(id).value = value; byId(id).dispatchEvent(new Event('change'));\n"
    "}\n"
    "function search(text) { byId('search').value = text; byId('search').dispatchEvent(new Event("
    "'input')); }\n"
    "function state(name) {\n"
    "  Array.from(byId('by-state').children).find(function (b) {\n"
    "    return b.textContent.startsWith(name); }).click();\n"
    "}\n"
    "function pointer(canvas, type, x, y) {\n"
    "  var at = canvas.getBoundingClientRect();\n"
    "  canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: at.left + x,\n"
    "    clientY: at.top + y, bubbles: true, pointerType: 'mouse' }));\n"
    "}\n"
    "// share of the picture that is not of the ground\n"
    "function ink(canvas) {\n"
    "  var copy = document.createElement('canvas');\n"
    "  copy.width = canvas.width; copy.height = canvas.height;\n"
    "  var ctx = copy.getContext('2d', { willReadFrequently: true });\n"
    "  ctx.drawImage(canvas, 0, 0);\n"
    "  var d = ctx.getImageData(0, 0, canvas.width, canvas.height).data, n = 0;\n"
    "  for (var i = 3; i < d.length; i += 4) n += d[i] > 40 ? 1 : 0;\n"
    "  return n / d.length * 4;\n"
    "}\n"
    "function report() {\n"
    "  var page = document.documentElement, said;\n"
    "  seen.fits = page.clientWidth >= page.scrollWidth;\n"
    "  seen.width = innerWidth;\n"
    "  seen.fetched = performance.getEntriesByType('resource').length;\n"
    "  said = JSON.stringify(seen);\n"
    "  if (parent !== window) parent.postMessage(said, '*');\n"
    "  else document.body.appendChild(document.createElement('output')).textContent = said;\n"
    "}\n"
    "</script>\n";

static const char probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var axes = byId('axes'), plot = byId('plot'), before, all;\n"
    "  seen.all = shown();\n"
    "  seen.first = rows('experiments-table')[0];\n"
    "  seen.marked = byId('experiments-table').querySelector('tr.best').cells[1].textContent;\n"
    "  seen.group = rows('groups-table')[0];\n"
    "  seen.drawn = ink(axes) > 0.01 && ink(plot) > 0.005;\n"
    "  head('experiments-table', 'batch_size').firstElementChild.click();\n"
    "  seen.up = rows('experiments-table')[0].split('|')[2] + ' ' +\n"
    "    head('experiments-table', 'batch_size').getAttribute('aria-sort');\n"
    "  head('experiments-table', 'batch_size').firstElementChild.click();\n"
    "  seen.down = rows('experiments-table')[0].split('|')[2];\n"
    "  search('batch_size=128 seed=1');\n"
    "  seen.searched = shown() + ' ' + rows('experiments-table').length;\n"
    "  search('no such');\n"
    "  seen.none = shown() + ' ' + rows('experiments-table').length;\n"
    "  byId('clear').click();\n"
    "  seen.cleared = shown() + ' ' + byId('clear').hidden;\n"
    "  state('failed');\n"
    "  seen.failed = shown() + ' ' + rows('experiments-table')[0].split('|').pop();\n"
    "  seen.groups = rows('groups-table').length;\n"
    "  state('done');\n"
    "  seen.both = shown();\n"
    "  byId('clear').click();\n"
    "  choose('value-1', '2');\n"
    "  seen.value = shown();\n"
    "  byId('clear').click();\n"
    "  seen.reset = byId('value-1').value === '';\n"
    "  // a range of the first axis: the upper part is the two highest rates\n"
    "  before = ink(axes);\n"
    "  pointer(axes, 'pointerdown', 14, 32); pointer(axes, 'pointermove', 14, 140);\n"
    "  pointer(axes, 'pointerup', 14, 140);\n"
    "  seen.range = shown();\n"
    "  pointer(axes, 'pointerdown', 14, 60); pointer(axes, 'pointerup', 14, 60);\n"
    "  seen.free = shown();\n"
    "  all = ink(plot);\n"
    "  choose('metric', '1'); byId('log').click();\n"
    "  seen.log = Math.abs(ink(plot) - all) > 1e-4;\n"
    "  choose('metric', '0'); byId('log').click();\n"
    "  choose('along', 'epochs');\n"
    "  pointer(plot, 'pointermove', plot.clientWidth - 12, 30);\n"
    "  seen.epochs = byId('tip').textContent.split('\\n')[1].split(':')[0];\n"
    "  choose('along', 'steps');\n"
    "  byId('mean').click();\n"
    "  seen.band = ink(plot) !== all;\n"
    "  byId('mean').click();\n"
    "  choose('colour', 'k0');\n"
    "  seen.legend = byId('curve-legend').textContent;\n"
    "  choose('colour', 'result');\n"
    "  pointer(plot, 'pointermove', plot.clientWidth - 12, 30);\n"
    "  seen.tip = byId('tip').hidden ? '' : byId('tip').textContent.split('\\n')[0];\n"
    "  // the numbers of an axis stand whole, also those of a loss in millions\n"
    "  var text = CanvasRenderingContext2D.prototype, write = text.fillText, left = 0;\n"
    "  text.fillText = function (word, x, y) {\n"
    "    if (this.textAlign === 'right') left = Math.min(left, x - this.measureText(word).width);\n"
    "    write.call(this, word, x, y);\n"
    "  };\n"
    "  var large = document.body.appendChild(document.createElement('div'));\n"
    "  brimPlot.curves(large.appendChild(document.createElement('canvas')), {}).draw({ bands: [],\n"
    "    lines: [{ exp: 0, steps: [1, 2], values: [1e6, 4.2e6], colour: 'red' }], log: false });\n"
    "  text.fillText = write;\n"
    "  large.remove();\n"
    "  seen.cut = left < 0;\n"
    "  location.hash = '#exp=0000101b0000';\n"
    "  setTimeout(function () {\n"
    "    var detail = byId('detail');\n"
    "    seen.detail = !detail.hidden && detail.querySelector('pre').textContent;\n"
    "    seen.attempts = Array.from(detail.querySelectorAll('.attempts tbody tr')).map(\n"
    "      function (row) { return row.cells[1].textContent; }).join(', ');\n"
    "    seen.hurt = document.querySelectorAll('cnn, #detail script').length;\n"
    "    detail.querySelector('.close').click();\n"
    "    seen.closed = detail.hidden;\n"
    "    report();\n"
    "  }, 50);\n"
    "});\n"
    "</script>\n";

static const char frame[] =
    "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"></head>"
    "<body><iframe width=\"390\" height=\"844\" src=\"probe.html\"></iframe>"
    "<output id=\"seen\"></output><script>\n"
    "addEventListener('message', function (event) {\n"
    "  document.getElementById('seen').textContent = event.data;\n"
    "});\n"
    "</script></body></html>\n";

static void contains(const char *text, const char *part) {
  const char *seen = strstr(text, "{\"all\":\"3");
  if (!seen) seen = strstr(text, "{\"all\":\"1");
  if (!strstr(text, part)) fail_msg("'%s' is not there: %.2000s", part, seen ? seen : text);
}

static void write_page(const brim_lab_set *set, const char *script) {
  brim_str page, both;
  brim_str_init(&page);
  brim_str_init(&both);
  assert_ok(brim_ui_lab_report(&options, set, &page));
  brim_str_append(&both, tools);
  brim_str_append(&both, script);
  write_text("page.html", page.data);
  write_probe("probe.html", page.data, both.data);
  brim_str_deinit(&both);
  brim_str_deinit(&page);
}

static void check_seen(const char *text) {
  silent(text);
  contains(text, "\"all\":\"36 of 36 experiments\"");
  contains(text, "\"first\":\"done|0.01|32|&lt;cnn&gt;|2|94.76 %|94.76 %|4 / 10|1 min|1|\"");
  contains(text, "\"marked\":\"0.01\"");
  contains(text, "\"group\":\"0.01|32|&lt;cnn&gt;|94.36 \xc2\xb1 0.40 %|3 / 3|93.96 %|94.76 %\"");
  contains(text, "\"drawn\":true");
  contains(text, "\"up\":\"32 ascending\"");
  contains(text, "\"down\":\"512\"");  // sorted as numbers
  contains(text, "\"searched\":\"4 of 36 experiments 4\"");
  contains(text, "\"none\":\"No experiment passes the filters. 0\"");
  contains(text, "\"cleared\":\"36 of 36 experiments true\"");
  contains(text, "\"failed\":\"3 of 36 experiments NaN\"");
  contains(text, "\"groups\":1");
  contains(text, "\"both\":\"35 of 36 experiments\"");
  contains(text, "\"value\":\"12 of 36 experiments\"");
  contains(text, "\"reset\":true");
  contains(text, "\"range\":\"18 of 36 experiments\"");
  contains(text, "\"free\":\"36 of 36 experiments\"");
  contains(text, "\"log\":true");
  contains(text, "\"epochs\":\"epoch 4\"");
  contains(text, "\"band\":true");
  contains(text, "\"legend\":\"0.00010.0010.010.1\"");
  contains(text, "\"tip\":\"learning_rate=0.01");
  contains(text, "\"detail\":\"epoch 3\\nloss nan &lt;/pre&gt;&lt;script&gt;alert(1)\"");
  contains(text, "\"attempts\":\"lease expired: machine failed, failed: NaN\"");
  contains(text, "\"cut\":false");
  contains(text, "\"hurt\":0");
  contains(text, "\"closed\":true");
  contains(text, "\"fits\":true");  // the page does not scroll sideways
  contains(text, "\"fetched\":0");
}

static void test_screen(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_experiments(&set);
  write_page(set, probe);
  char *text = open_page("probe.html");
  check_seen(text);
  contains(text, "\"width\":1280");
  brim_free(text);
  brim_lab_reader_destroy(reader);
}

static void test_phone(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_experiments(&set);
  write_page(set, probe);
  write_text("frame.html", frame);
  char *text = open_page("frame.html");
  check_seen(text);
  contains(text, "\"width\":390");
  brim_free(text);
  brim_lab_reader_destroy(reader);
}

static const char many_probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var box = byId('experiments-table');\n"
    "  seen.all = shown();\n"
    "  seen.few = document.querySelectorAll('tr').length < 400;\n"
    "  box.scrollTop = box.scrollHeight;\n"
    "  (function look(tries) {\n"  // the browser scrolls at some later time
    "    seen.end = rows('experiments-table').pop().split('|')[6] === '50.00 %';\n"
    "    if (!seen.end && tries > 0) { setTimeout(look, 100, tries - 1); return; }\n"
    "    search('seed=3');\n"
    "    seen.searched = shown();\n"
    "    seen.drawn = ink(byId('axes')) > 0.05 && ink(byId('plot')) > 0.05;\n"
    "    report();\n"
    "  })(100);\n"
    "});\n"
    "</script>\n";

// Rows are made when the page is scrolled to them; all of them are drawn in the end.
static void test_ten_thousand(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_many(10000, 20, &set);
  write_page(set, many_probe);
  char *text = open_page("probe.html");
  silent(text);
  contains(text, "\"all\":\"10000 of 10000 experiments\"");
  contains(text, "\"few\":true");
  contains(text, "\"end\":true");  // the lowest result is the last row
  contains(text, "\"searched\":\"2000 of 10000 experiments\"");
  contains(text, "\"drawn\":true");
  contains(text, "\"fits\":true");
  contains(text, "\"fetched\":0");
  brim_free(text);
  brim_lab_reader_destroy(reader);
}

// Tests nothing: it makes pictures for people.
static void test_pictures(void **state) {
  (void)state;
  const brim_lab_set *set = NULL;
  brim_lab_reader *reader = lab_experiments(&set);
  char does[4700];
  write_page(set, probe);
  snprintf(does, sizeof does, "--screenshot=%s/page.png", folder);
  char *text = browse("page.html", does);
  silent(text);
  brim_free(text);
  brim_lab_reader_destroy(reader);
}

int main(void) {
  brim_json_own_memory();
  open_browser();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_screen),
      cmocka_unit_test(test_phone),
      cmocka_unit_test(test_ten_thousand),
      cmocka_unit_test(test_pictures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
