// The page of a profile in a browser, on a screen and in a frame as wide as a phone: choosing, sorting and searching
// tables, memory under the pointer. The console must stay silent, nothing may be fetched and the page must not scroll
// sideways.
#include "chromium.h"
#include "profile_record.h"
#include "ui/profile/ui_profile.h"

static const char probe[] =
    "<script>\n"
    "var seen = {};\n"
    "function byId(id) { return document.getElementById(id); }\n"
    "function open() { return Array.from(document.querySelectorAll('.list')).filter(\n"
    "  function (l) { return !l.hidden; }); }\n"
    "function names() { return Array.from(open()[0].querySelectorAll('tbody tr')).filter(\n"
    "  function (r) { return !r.hidden; }).map(function (r) { return r.cells[0].textContent; }); "
    "}\n"
    "function head(key) { return open()[0].querySelector('th[data-key=' + key + ']'); }\n"
    "function at(share, y) {\n"
    "  var chart = byId('memory-chart'), box = chart.getBoundingClientRect();\n"
    "  var x = box.left + box.width * share, rect = "
    "document.querySelector('rect[data-b=\"13\"]');\n"
    "  (y ? rect : chart).dispatchEvent(new PointerEvent('pointermove', { clientX: x,\n"
    "    clientY: box.top + 5, bubbles: true }));\n"
    "}\n"
    "window.addEventListener('load', function () {\n"
    "  var page = document.documentElement, said;\n"
    "  seen.lists = open().length + ' ' + open()[0].dataset.list;\n"
    "  seen.first = names()[1];\n"
    "  head('ceiling').firstElementChild.click();\n"
    "  seen.ceiling = names()[0] + ' ' + head('ceiling').getAttribute('aria-sort');\n"
    "  seen.unknown = names().slice(-2).sort().join(', ');\n"
    "  head('time').firstElementChild.click();\n"
    "  seen.time = names()[1] + ' ' + head('time').getAttribute('aria-sort');\n"
    "  byId('search').value = 'ELEMENTWISE_1 copy';\n"
    "  byId('search').dispatchEvent(new Event('input'));\n"
    "  seen.found = names().length;\n"
    "  byId('lists').querySelector('[data-list=transforms]').click();\n"
    "  byId('search').value = '';\n"
    "  byId('search').dispatchEvent(new Event('input'));\n"
    "  seen.transforms = names().join(', ');\n"
    "  location.hash = '#by=layers';\n"
    "  setTimeout(function () {\n"
    "    seen.layer = names()[0];\n"
    "    at(0.48, true);\n"
    "    seen.op = byId('memory-op').textContent;\n"
    "    seen.owners = byId('memory-owners').rows.length;\n"
    "    seen.tip = byId('tip').textContent;\n"
    "    at(0.01, false);\n"
    "    seen.begin = byId('memory-owners').rows.length;\n"
    "    seen.fits = page.clientWidth >= page.scrollWidth;\n"
    "    seen.width = innerWidth;\n"
    "    seen.fetched = performance.getEntriesByType('resource').length;\n"
    "    said = JSON.stringify(seen);\n"
    "    if (parent !== window) parent.postMessage(said, '*');\n"
    "    else document.body.appendChild(document.createElement('output')).textContent = said;\n"
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
  const char *seen = strstr(text, "{\"lists\":");
  if (!strstr(text, part)) fail_msg("'%s' is not there: %.2000s", part, seen ? seen : text);
}

static void write_pages(void) {
  brim_profile p;
  brim_str page;
  make_gpu_profile(&p);
  brim_str_init(&page);
  assert_ok(brim_ui_profile_page(&p, "brim profile a.yaml", &page));
  write_probe("probe.html", page.data, probe);
  write_text("frame.html", frame);
  brim_str_deinit(&page);
  brim_profile_deinit(&p);
}

static void check_seen(const char *text) {
  silent(text);
  contains(text, "\"lists\":\"1 kernels\"");
  contains(text, "\"first\":\"brim_batchnorm_backward\"");
  contains(text, "\"ceiling\":\"brim_batchnorm_backward ascending\"");
  contains(text, "\"unknown\":\"GPU idle: the step waited for data, Memcpy HtoD\"");
  contains(text, "\"time\":\"brim_batchnorm_backward descending\"");
  contains(text, "\"found\":5");  // 1 and 10 to 13
  contains(text, "\"transforms\":\"random_resized_crop, normalize\"");
  contains(text, "\"layer\":\"block.3 &lt;b&gt;\"");
  contains(text, "\"op\":\"#12  conv  block.11: 112.0 MiB\"");
  contains(text, "\"owners\":12");
  contains(text, "\"tip\":\"conv block.11\\n112.0 MiB\\nconv workspace (workspace): 8.0 MiB\"");
  contains(text, "\"begin\":1");
  contains(text, "\"fits\":true");
  contains(text, "\"fetched\":0");
}

static void test_screen(void **state) {
  (void)state;
  write_pages();
  char *text = open_page("probe.html");
  check_seen(text);
  contains(text, "\"width\":1280");
  brim_free(text);
}

static void test_phone(void **state) {
  (void)state;
  write_pages();
  char *text = open_page("frame.html");
  check_seen(text);
  contains(text, "\"width\":390");
  brim_free(text);
}

int main(void) {
  brim_json_own_memory();
  open_browser();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_screen), cmocka_unit_test(test_phone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
