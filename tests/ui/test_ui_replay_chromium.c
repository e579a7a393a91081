// The replay page played by a browser: in a frame as wide as a phone, and on a screen. The tests look for the robot's
// colours pixel by pixel; the console must stay silent, and nothing may be fetched. Leaves pictures of both widths for
// people to look at.
#include "chromium.h"
#include "env/cartpole/cartpole.h"
#include "env/uav/uav.h"
#include "replay_training.h"
#include "replay_trajectories.h"

// Both run after the page's own scripts: the probe's helpers, then the probe.
static const char tools[] =
    "<script>\n"
    "  function byId(id) { return document.getElementById(id); }\n"
    "  function text(query) { return document.querySelector(query).textContent; }\n"
    "  function key(target, name) {\n"
    "    target.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));\n"
    "  }\n"
    "  function drawn() { return new Promise(function (done) {\n"
    "    requestAnimationFrame(function () { requestAnimationFrame(done); }); }); }\n"
    "  // from a copy: one that is read often is drawn in another way\n"
    "  function pixels(c) {\n"
    "    var copy = document.createElement('canvas');\n"
    "    copy.width = c.width; copy.height = c.height;\n"
    "    var ctx = copy.getContext('2d', { willReadFrequently: true });\n"
    "    ctx.drawImage(c, 0, 0);\n"
    "    return ctx.getImageData(0, 0, c.width, c.height).data;\n"
    "  }\n"
    "  // share of the picture that is orange: the front legs; blue: the rear ones; and of change\n"
    "  function count(c, what) {\n"
    "    var d = pixels(c), n = 0;\n"
    "    for (var i = 0; i < d.length; i += 4) n += what(d[i], d[i + 1], d[i + 2]) ? 1 : 0;\n"
    "    return n / d.length * 4;\n"
    "  }\n"
    "  function orange(r, g, b) { return r > 150 && r > g * 1.25 && g > b * 1.3; }\n"
    "  function blue(r, g, b) { return b > 100 && b > r * 1.5 && b > g * 1.1; }\n"
    "  function pink(r, g, b) { return r > 150 && r > g * 2.5 && r > b * 1.3; }\n"
    "  function differs(a, b) {\n"
    "    var n = 0;\n"
    "    for (var i = 0; i < a.length; i += 4) n += Math.abs(a[i] - b[i]) > 20 ? 1 : 0;\n"
    "    return n / a.length * 4 > 0.003;\n"
    "  }\n"
    "  function seek(step) {\n"
    "    byId('seek').value = String(step);\n"
    "    byId('seek').dispatchEvent(new Event('input'));\n"
    "    return drawn();\n"
    "  }\n"
    "</script>\n";
static const char probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var seen = {}, canvas = document.querySelectorAll('canvas'), first, c = canvas[0];\n"
    "  seen.playing = byId('play').getAttribute('aria-pressed');\n"
    "  drawn().then(function () {\n"
    "    seen.clock = text('#clock') + ', ' + text('#step');\n"
    "    seen.height = text('.curve[data-key=height] output');\n"
    "    seen.orange = count(c, orange) > 0.004 && count(canvas[1], orange) > 0.004;\n"
    "    seen.blue = count(c, blue) > 0.002;\n"
    "    seen.push = count(c, pink) > 0.001;\n"
    "    return seek(0);\n"
    "  }).then(function () {\n"
    "    seen.still = count(c, pink) < 0.0002;\n"
    "    first = pixels(c);\n"
    "    c.focus(); key(c, 'ArrowLeft'); key(c, 'ArrowLeft'); key(c, 'ArrowLeft');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.turned = differs(first, pixels(c));\n"
    "    key(document.body, '0');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.back = !differs(first, pixels(c));\n"
    "    var at = c.getBoundingClientRect();\n"
    "    function point(type, x, y) { c.dispatchEvent(new PointerEvent(type, { pointerId: 1,\n"
    "      clientX: at.left + x, clientY: at.top + y, buttons: 1 })); }\n"
    "    point('pointerdown', 50, 50); point('pointermove', 110, 60);\n"
    "    point('pointerup', 110, 60);\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    key(document.body, '0'); key(document.body, '+'); key(document.body, '+');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.closer = differs(first, pixels(c));\n"
    "    key(document.body, '.'); key(document.body, '.'); key(document.body, ',');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.stepped = text('#step');\n"
    "    key(document.body, 'f');\n"
    "    seen.follow = byId('follow').getAttribute('aria-pressed');\n"
    "    key(document.body, ']');\n"
    "    seen.speed = byId('speed').getAttribute('aria-valuetext');\n"
    "    key(document.body, 'End');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.end = text('#clock') + ' ' + text('.curve[data-key=height] .c1 output');\n"
    "    seen.badges = Array.from(document.querySelectorAll('.badge')).map(function (b) {\n"
    "      return b.hidden ? '-' : b.textContent; }).join(' ');\n"
    "    var plot = document.querySelector('.plot'), at = plot.getBoundingClientRect();\n"
    "    plot.dispatchEvent(new PointerEvent('pointerdown',\n"
    "      { clientX: at.left + at.width / 2, clientY: at.top + 5 }));\n"
    "    document.querySelector('#show button[data-v=\"1\"]').click();\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.middle = text('#clock');\n"
    "    seen.shown = Array.from(document.querySelectorAll('.view')).map(function (v) {\n"
    "      return v.hidden ? 0 : 1; }).join('');\n"
    "    byId('play').click();\n"
    "    return drawn().then(drawn).then(drawn);\n"
    "  }).then(function () {\n"
    "    seen.runs = text('#clock') !== seen.middle;\n"
    "    byId('play').click();\n"
    "    var page = document.documentElement;\n"
    "    seen.fits = page.clientWidth >= page.scrollWidth;\n"
    "    seen.width = innerWidth;\n"
    "    seen.fetched = performance.getEntriesByType('resource').length;\n"
    "    var said = JSON.stringify(seen);\n"
    "    if (parent !== window) parent.postMessage(said, '*');\n"
    "    else document.body.appendChild(document.createElement('output')).textContent = said;\n"
    "  });\n"
    "});\n"
    "</script>\n";

// %s is the page
static const char frame[] =
    "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"></head>"
    "<body><iframe width=\"390\" height=\"844\" src=\"%s#t=1.5\"></iframe>"
    "<output id=\"seen\"></output><script>\n"
    "addEventListener('message', function (event) {\n"
    "  document.getElementById('seen').textContent = event.data;\n"
    "});\n"
    "</script></body></html>\n";

static void contains(const char *text, const char *part) {
  const char *seen = strstr(text, "{\"playing\"");
  if (!strstr(text, part)) fail_msg("'%s' is not there: %.1500s", part, seen ? seen : text);
}

static void make_page(brim_str *page) {
  brim_trajectory list[2];
  make_episode(&list[0], brim_tr("Policy"), 401, false);
  make_episode(&list[1], brim_tr("Zero policy"), 134, true);
  brim_str_init(page);
  assert_ok(brim_ui_replay(&replay_options, list, 2, page));
  for (int i = 0; i < 2; i++) brim_trajectory_deinit(&list[i]);
}

// The browser runs the page's clock ahead of time for the test. Frames come by that clock, because otherwise it would
// be over before one is drawn.
static const char clock_frames[] =
    "<script>window.requestAnimationFrame = function (draw) {\n"
    "  return setTimeout(function () { draw(performance.now()); }, 16); };</script>\n";

static void write_played(const char *page, const char *script) {
  brim_str both, paced;
  const char *end = strstr(page, "</head>");
  assert_non_null(end);
  brim_str_init(&paced);
  brim_str_append_n(&paced, page, (size_t)(end - page));
  brim_str_append(&paced, clock_frames);
  brim_str_append(&paced, end);
  brim_str_init(&both);
  brim_str_append(&both, tools);
  brim_str_append(&both, script);
  assert_ok(brim_str_status(&both));
  assert_ok(brim_str_status(&paced));
  write_probe("probe.html", paced.data, both.data);
  brim_str_deinit(&both);
  brim_str_deinit(&paced);
}

static void check_seen(const char *text) {
  silent(text);
  contains(text, "\"playing\":\"false\"");  // the address stops it at a given time
  contains(text, "\"clock\":\"1.50 / 20.00 s, step 30 / 400\"");
  contains(text, "\"height\":\"0.560\"");  // 0.556 + 0.01 sin 9, rounded as in the page
  contains(text, "\"orange\":true");
  contains(text, "\"blue\":true");
  contains(text, "\"push\":true");   // the arrow of step 25
  contains(text, "\"still\":true");  // the start has no arrow
  contains(text, "\"turned\":true");
  contains(text, "\"back\":true");
  contains(text, "\"closer\":true");
  contains(text, "\"stepped\":\"step 1 / 400\"");
  contains(text, "\"follow\":\"false\"");
  contains(text, "\"speed\":\"2\xc3\x97\"");
  contains(text, "\"end\":\"20.00 / 20.00 s \xe2\x80\x93\"");  // the other replay has ended before
  contains(text, "\"badges\":\"- fell at 6.65 s\"");
  contains(text, "\"middle\":\"10.00 / 20.00 s\"");
  contains(text, "\"shown\":\"01\"");
  contains(text, "\"runs\":true");
  contains(text, "\"fits\":true");
  contains(text, "\"fetched\":0");
}

static void test_played(void **state) {
  (void)state;
  brim_str page;
  make_page(&page);
  write_played(page.data, probe);
  char *text = open_page("probe.html#t=1.5");
  check_seen(text);
  contains(text, "\"width\":1280");
  brim_free(text);
  brim_str_deinit(&page);
}

static void test_phone(void **state) {
  (void)state;
  brim_str page;
  char outer[1024];
  make_page(&page);
  write_played(page.data, probe);
  snprintf(outer, sizeof outer, frame, "probe.html");
  write_text("frame.html", outer);
  char *text = open_page("frame.html");
  check_seen(text);
  contains(text, "\"width\":390");
  brim_free(text);
  brim_str_deinit(&page);
}

//---------------------------------- the cart-pole ----------------------------------

static const char cart_probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var seen = { playing: byId('play').getAttribute('aria-pressed') }, first;\n"
    "  var canvas = document.querySelectorAll('canvas'), c = canvas[0];\n"
    "  function shown() { return Array.from(document.querySelectorAll('.view, .curve')).map(\n"
    "    function (v) { return v.hidden ? 0 : 1; }).join(''); }\n"
    "  drawn().then(function () {\n"
    "    seen.clock = text('#clock') + ', ' + text('#step');\n"
    "    seen.cart = text('.curve[data-key=cart] output');\n"
    "    seen.angle = text('.curve[data-key=angle] output');\n"
    "    seen.colours = count(c, blue) > 0.002 && count(c, orange) > 0.002;\n"
    "    seen.shown = shown();\n"
    "    seen.follow = byId('follow') === null;\n"
    "    first = pixels(c);\n"
    "    key(document.body, '+'); key(c, 'ArrowLeft'); key(document.body, '0');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.still = !differs(first, pixels(c));\n"
    "    return seek(60);\n"
    "  }).then(function () {\n"
    "    seen.moved = differs(first, pixels(c));\n"
    "    byId('episode').value = '1';\n"
    "    byId('episode').dispatchEvent(new Event('change'));\n"
    "    key(document.body, 'End');\n"
    "    return drawn();\n"
    "  }).then(function () {\n"
    "    seen.other = text('#step') + ' ' + shown();\n"
    "    seen.badges = Array.from(document.querySelectorAll('.badge')).map(function (b) {\n"
    "      return b.hidden ? '-' : b.textContent; }).join(' ');\n"
    "    seen.drawn = count(canvas[2], blue) > 0.002;\n"
    "    document.querySelector('#show button[data-v=\"1\"]').click();\n"
    "    seen.alone = shown();\n"
    "    var page = document.documentElement;\n"
    "    seen.fits = page.clientWidth >= page.scrollWidth;\n"
    "    seen.fetched = performance.getEntriesByType('resource').length;\n"
    "    document.body.appendChild(document.createElement('output')).textContent =\n"
    "      JSON.stringify(seen);\n"
    "  });\n"
    "});\n"
    "</script>\n";

// A pole that sways from side to side; with `fall` it tips over until the last frame.
static void make_cart(const brim_scene *scene, brim_trajectory *t, int64_t frames, bool fall) {
  assert_ok(brim_trajectory_init(t, fall ? "Zero policy" : "Policy", scene, 0.02, frames));
  t->frames = frames;
  for (int64_t i = 0; i < frames; i++) {
    const float s = (float)i / (float)(frames - 1);
    t->state[2 * i] = fall ? 0.05f * s : sinf((float)i * 0.05f);
    t->state[2 * i + 1] = fall ? 0.22f * s * s : 0.02f * cosf((float)i * 0.1f);
    t->reward[i] = 1;
  }
  t->end = fall ? BRIM_SCENE_ENDED : BRIM_SCENE_LASTED;
  assert_ok(brim_trajectory_finish(t));
}

static void test_cartpole(void **state) {
  (void)state;
  static const char *const names[] = {"3", "7"};
  brim_trajectory list[4];
  brim_scene scene;
  brim_str page;
  brim_ui_replay_options how = replay_options;
  memset(&scene, 0, sizeof scene);
  brim_cartpole_row.scene(NULL, &scene);
  for (int i = 0; i < 4; i++) make_cart(&scene, &list[i], i < 2 ? 101 : 51, i % 2 == 1);
  how.episodes = names;
  how.episode_count = 2;
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&how, list, 4, &page));
  for (int i = 0; i < 4; i++) brim_trajectory_deinit(&list[i]);
  write_played(page.data, cart_probe);
  char *text = open_page("probe.html#t=0.4");
  silent(text);
  contains(text, "\"playing\":\"false\"");
  contains(text, "\"clock\":\"0.40 / 2.00 s, step 20 / 100\"");
  contains(text, "\"cart\":\"0.841\"");      // sin 1
  contains(text, "\"angle\":\"-0.48\"");     // 0.02 cos 2, in degrees
  contains(text, "\"colours\":true");        // cart and pole
  contains(text, "\"shown\":\"11001100\"");  // views and curves of the first episode
  contains(text, "\"follow\":true");         // a cart-pole cannot be turned or followed
  contains(text, "\"still\":true");
  contains(text, "\"moved\":true");
  contains(text, "\"other\":\"step 50 / 50 00110011\"");
  contains(text, "\"badges\":\"- - - fell at 1.00 s\"");
  contains(text, "\"drawn\":true");
  contains(text, "\"alone\":\"00010011\"");
  contains(text, "\"fits\":true");
  contains(text, "\"fetched\":0");
  brim_free(text);
  brim_str_deinit(&page);
}

// A grid of 6 x 6 cells. The %d are x and y of an obstacle, of a cell that is covered from step 1 on, and of a UAV at
// step 3. The probe reads a cell's colour in its middle, a UAV's between its middle and its rim.
static const char grid_probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var seen = {}, c = document.querySelector('canvas'), first;\n"
    "  function colour(x, y, aside) {\n"
    "    var scale = Math.min(c.width, c.height) * 0.97 / 6;\n"
    "    var px = Math.round((c.width - 6 * scale) / 2 + (x + 0.5 + aside) * scale);\n"
    "    var py = Math.round((c.height - 6 * scale) / 2 + (y + 0.5) * scale);\n"
    "    return Array.from(pixels(c).slice(4 * (py * c.width + px), 4 * (py * c.width + px) + "
    "3));\n"
    "  }\n"
    "  function sum(rgb) { return rgb[0] + rgb[1] + rgb[2]; }\n"
    "  function vivid(rgb) { return Math.max.apply(null, rgb) - Math.min.apply(null, rgb) > 60; }\n"
    "  seek(0).then(function () {\n"
    "    seen.wall = sum(colour(%d, %d, 0)) < 400;\n"
    "    first = colour(%d, %d, 0.3);\n"
    "    seen.bare = sum(first) > 650;\n"
    "    return seek(3);\n"
    "  }).then(function () {\n"
    "    var now = colour(%d, %d, 0.3);\n"
    "    seen.covered = sum(now) < sum(first) - 20;\n"
    "    seen.uav = vivid(colour(%d, %d, 0.3));\n"
    "    seen.step = text('#step');\n"
    "    seen.coverage = text('.curve[data-key=coverage] output');\n"
    "    seen.fetched = performance.getEntriesByType('resource').length;\n"
    "    document.body.appendChild(document.createElement('output')).textContent =\n"
    "      JSON.stringify(seen);\n"
    "  });\n"
    "});\n"
    "</script>\n";

// One obstacle in the north-west corner; one UAV flies east along the second row from its first cell.
static void make_grid(const brim_uav_values *v, const brim_scene *scene, brim_trajectory *t) {
  enum { EAST = 2, STATES = 5 };
  const brim_env_track track = brim_env_track_of(brim_env_training(1, 0, 0, 0));
  const int32_t east = EAST;
  brim_uav_state s;
  brim_uav_reset(v, &track, &s);
  for (int32_t i = brim_grid_obstacles_at(v); i < brim_uav_stored(v) / 4 - 5; i++) s.rest[i] = 0;
  s.rest[0] = brim_grid_place(0, 1, 0, 0);
  brim_grid_set(s.rest + brim_grid_obstacles_at(v), 0);
  brim_grid_set(s.rest + brim_grid_covered_at(v), 6);
  brim_grid_set(s.rest + brim_grid_occupied_at(v), 6);
  assert_ok(brim_trajectory_init(t, "Policy", scene, 1, STATES));
  t->frames = STATES;
  for (int64_t i = 0; i < STATES; i++) {
    brim_uav_frame(v, &s, t->state + i * t->width);
    t->reward[i] = brim_uav_step(v, &track, &s, &east).reward;
  }
  t->end = BRIM_SCENE_LASTED;
  assert_ok(brim_trajectory_finish(t));
}

static void test_grid(void **state) {
  (void)state;
  brim_uav_values v = {.task = BRIM_UAV_COVERAGE, .size = 6, .num_uavs = 1, .num_obstacles = 1};
  v.episode_steps = 4, v.crop = 3;
  brim_trajectory list[1];
  brim_scene scene;
  brim_str page;
  char played[sizeof grid_probe + 64];
  memset(&scene, 0, sizeof scene);
  brim_uav_row.scene(&v, &scene);
  make_grid(&v, &scene, &list[0]);
  brim_ui_replay_options how = replay_options;
  brim_str_init(&page);
  assert_ok(brim_ui_replay(&how, list, 1, &page));
  brim_trajectory_deinit(&list[0]);
  snprintf(played, sizeof played, grid_probe, 0, 0, 1, 1, 1, 1, 3, 1);
  write_played(page.data, played);
  char *text = open_page("probe.html");
  silent(text);
  contains(text, "\"wall\":true");
  contains(text, "\"bare\":true");
  contains(text, "\"covered\":true");
  contains(text, "\"uav\":true");
  contains(text, "\"step\":\"step 3 / 4\"");
  contains(text, "\"coverage\":\"11.4\"");  // 4 of 35
  contains(text, "\"fetched\":0");
  brim_free(text);
  brim_str_deinit(&page);
}

//---------------------------------- the run ----------------------------------

static const char training_probe[] =
    "<script>\n"
    "window.addEventListener('load', function () {\n"
    "  var seen = {}, of = document.querySelector('#training .curve');\n"
    "  var plot = of.querySelector('.plot'), box = plot.getBoundingClientRect();\n"
    "  function read() {\n"
    "    return of.querySelector('.read').textContent + (of.matches('.chosen') ? ' *' : '');\n"
    "  }\n"
    "  function point(name, share) {\n"
    "    plot.dispatchEvent(new PointerEvent(name, { clientX: box.left + share * box.width }));\n"
    "  }\n"
    "  seen.first = read();\n"
    "  point('pointermove', 0.43);\n"
    "  seen.over = read();\n"
    "  point('pointerleave', 0);\n"
    "  seen.left = read();\n"
    "  plot.focus();\n"
    "  key(plot, 'ArrowRight');\n"
    "  seen.right = read() + ', ' + plot.getAttribute('role') + ' ' +\n"
    "    plot.getAttribute('aria-valuetext');\n"
    "  key(plot, 'Home'); key(plot, 'ArrowLeft');\n"
    "  seen.home = read() + ', ' + text('#step');\n"
    "  key(plot, 'End');\n"
    "  seen.end = read() + ', ' + of.querySelector('.now').style.left;\n"
    "  plot.blur();\n"
    "  seen.gone = read();\n"
    "  seen.line = getComputedStyle(of.querySelector('.now')).display;\n"
    "  var page = document.documentElement;\n"
    "  seen.fits = page.clientWidth >= page.scrollWidth;\n"
    "  seen.fetched = performance.getEntriesByType('resource').length;\n"
    "  document.body.appendChild(document.createElement('output')).textContent =\n"
    "    JSON.stringify(seen);\n"
    "  if (parent !== window) parent.postMessage(JSON.stringify(seen), '*');\n"
    "});\n"
    "</script>\n";

static void make_trained(brim_str *page) {
  brim_trajectory t;
  brim_ui_replay_options how = replay_options;
  how.training = &training_curves;
  how.training_step = "iteration";
  how.training_baseline = "random";
  make_episode(&t, "Policy", 401, false);
  brim_str_init(page);
  assert_ok(brim_ui_replay(&how, &t, 1, page));
  brim_trajectory_deinit(&t);
}

static void check_training(const char *text) {
  silent(text);
  contains(text, "\"first\":\"iteration 30 7.5\"");
  contains(text, "\"over\":\"iteration 20 0.5 *\"");
  contains(text, "\"left\":\"iteration 30 7.5\"");
  contains(text, "\"right\":\"iteration 40 3 *, slider iteration 40, 3\"");
  // Home does not change the episode
  contains(text, "\"home\":\"iteration 10 -2 *, step 30 / 400\"");
  contains(text, "\"end\":\"iteration 50 4 *, 100%\"");
  contains(text, "\"gone\":\"iteration 30 7.5\"");
  contains(text, "\"line\":\"none\"");
  contains(text, "\"fits\":true");
  contains(text, "\"fetched\":0");
}

static void test_training(void **state) {
  (void)state;
  brim_str page;
  char outer[1024];
  make_trained(&page);
  write_played(page.data, training_probe);
  char *text = open_page("probe.html#t=1.5");
  check_training(text);
  brim_free(text);
  snprintf(outer, sizeof outer, frame, "probe.html");
  write_text("frame.html", outer);
  text = open_page("frame.html");
  check_training(text);
  brim_free(text);
  brim_str_deinit(&page);
}

static void picture(const char *page, const char *file) {
  char does[4700], path[4608];
  uint64_t size = 0;
  path_of(file, path);
  snprintf(does, sizeof does, "--screenshot=%s", path);
  char *text = browse(page, does);
  silent(text);
  brim_free(text);
  assert_ok(brim_fs_size(path, &size));
  assert_true(size > 20000);  // an empty page has a tenth of this
}

static void test_pictures(void **state) {
  (void)state;
  brim_str page;
  char outer[1024];
  make_page(&page);
  write_text("replay.html", page.data);
  snprintf(outer, sizeof outer, frame, "replay.html");
  write_text("frame.html", outer);
  picture("replay.html#t=1.5", "replay-1280.png");
  picture("frame.html", "replay-390.png");
  brim_str_deinit(&page);
}

int main(void) {
  open_browser();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_played),   cmocka_unit_test(test_phone),
      cmocka_unit_test(test_cartpole), cmocka_unit_test(test_grid),
      cmocka_unit_test(test_training), cmocka_unit_test(test_pictures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
