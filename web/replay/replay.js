// A replay page: reads the trajectories from the page, plays them, and moves the camera. brimScene (scene_KIND.js) draws.
// Texts come from the page, in its language.
// page.html#t=2.5 stops at 2.5 s; #show=0 shows the first alone, #episode=1 the second episode.
//
// brimScene:
//   draw(ctx, width, height, s)   one frame, in CSS pixels, with s:
//     at        {part: numbers} between two frames, by the names of the parts; of events, nothing
//     frame     number of the frame before; time: seconds
//     replay    the whole episode: parts {name: numbers of all frames}, columns {name: of a frame},
//               events {name: [[frame, number, ...], ...]}, last frame, dt
//     numbers   constants of the scene
//     colours   of(name): a CSS variable of replay.css; rgb(name): one of three numbers; dark
//     camera    target, azimuth, elevation, distance; only in scenes with a camera
//   mix(part, a, b, s)   numbers between those of two frames, a and b; left out: linear
//   camera               where it starts: azimuth, elevation, distance; left out: there is none
//   target(at)           the point that the camera looks at
//   A line "// needs parts.NAME numbers.NAME ..." of the script: scenes without them are refused (ui_replay.c).
//   aspect               width of the picture by its height; left out: a height of its own
'use strict';
(function () {
  var doc = document, byId = brimPage.byId, list = brimPage.list;
  doc.documentElement.classList.add('scripted');
  var data = JSON.parse(byId('data').textContent), text = data.text;

  //-------------------------------- trajectories --------------------------------

  // brim.trajectory/1: base64 of zigzag differences in groups of seven bits.
  function decode(base64, scale, columns, rows) {
    var bytes = atob(base64), at = 0, out = new Float32Array(columns * rows), now = new Array(columns).fill(0);
    for (var i = 0; i < columns * rows; i++) {
      var value = 0, weight = 1, byte = 128;
      // Shifts would fail above 32 bits.
      for (; byte >= 128; weight *= 128) {
        byte = bytes.charCodeAt(at++);
        value += byte % 128 * weight;
      }
      now[i % columns] += value % 2 ? -(value + 1) / 2 : value / 2;
      out[i] = now[i % columns] * scale;
    }
    return out;
  }
  function partsOf(r) {
    var out = { parts: {}, columns: {}, events: {} };
    data.scene.parts.forEach(function (part) {
      if (part.when === 'events') {
        out.events[part.key] = r[part.key];
        return;
      }
      var rows = part.when === 'first' ? 1 : r.frames;
      out.columns[part.key] = part.columns;
      out.parts[part.key] = decode(r[part.key], part.scale || r.scale, part.columns, rows);
    });
    return out;
  }
  // The value of a curve at a frame.
  function valuesOf(curve, r, i, reward) {
    if (curve.values) {
      var own = decode(curve.values[i], r.scale, 1, r.frames);
      return function (f) { return own[f] > 150000 ? NaN : own[f]; };
    }
    if (curve.part) {
      return function (f) { return r.parts[curve.part][f * r.columns[curve.part] + curve.column]; };
    }
    // the reward of the step that led to the frame
    return function (f) { return f > 0 ? reward[f - 1] : NaN; };
  }
  var replays = data.replays.map(function (r, i) {
    var reward = decode(r.reward, r.scale, 1, r.frames - 1);
    var out = Object.assign(partsOf(r), { dt: r.dt, frames: r.frames, last: r.frames - 1, scale: r.scale });
    out.values = {};
    data.curves.forEach(function (curve) { out.values[curve.key] = valuesOf(curve, out, i, reward); });
    return out;
  });
  var dt = replays[0].dt, rate = data.scene.rate || 1, timed = !data.scene.rate;
  // The trajectories of the first episode come first, then those of the second.
  var beside = replays.length / (data.choices || 1), episode = 0, last, end;

  function straight(part, a, b, s) { return a.map(function (v, k) { return v * (1 - s) + b[k] * s; }); }
  // Interpolates the parts between two frames.
  function stateAt(r, time) {
    var f = Math.min(time / r.dt, r.last), i = Math.min(Math.floor(f), Math.max(r.last - 1, 0)), out = {};
    data.scene.parts.forEach(function (part) {
      var numbers = r.parts[part.key], n = part.columns;
      function row(k) { return Array.prototype.slice.call(numbers, k * n, (k + 1) * n); }
      if (part.when === 'first') out[part.key] = row(0);
      if (part.when !== 'every') return;
      out[part.key] = (brimScene.mix || straight)(part.key, row(i), row(Math.min(i + 1, r.last)), f - i);
    });
    return out;
  }

  //-------------------------------- the picture --------------------------------

  if (brimScene.aspect) {
    doc.documentElement.classList.add('shaped');
    doc.documentElement.style.setProperty('--aspect', String(brimScene.aspect));
  }
  var START = brimScene.camera || {};
  var camera = Object.assign({}, START), follow = true, colours;
  var views = list(byId('stage'), '.view').map(function (element, i) {
    var canvas = element.querySelector('canvas');
    return { element: element, canvas: canvas, ctx: canvas.getContext('2d'), replay: replays[i],
             episode: Math.floor(i / beside), which: i % beside,
             badge: element.querySelector('.badge'), target: null };
  });
  var time = 0, playing = false, speed = 1, paper = false, following = byId('follow');

  function readColours() {
    var style = getComputedStyle(doc.documentElement), known = {};
    function of(name) {
      if (!(name in known)) known[name] = style.getPropertyValue('--' + name).trim();
      return known[name];
    }
    function rgb(name) {
      var key = name + ' rgb';
      return known[key] || (known[key] = of(name).split(/\s+/).map(Number));
    }
    colours = { of: of, rgb: rgb, dark: of('shadow-strong') === '1' };
  }
  function drawView(view) {
    var r = view.replay, box = view.canvas.getBoundingClientRect(), at = stateAt(r, time);
    if (!box.width) return;
    var ratio = Math.min(window.devicePixelRatio || 1, 2) * (paper ? 2 : 1);
    var width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    if (view.canvas.width !== width || view.canvas.height !== height) {
      view.canvas.width = width;
      view.canvas.height = height;
    }
    if (brimScene.target && (follow || !view.target)) view.target = brimScene.target(at);
    view.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    brimScene.draw(view.ctx, box.width, box.height, {
      at: at, frame: Math.min(Math.floor(time / r.dt + 1e-9), r.last), time: Math.min(time, r.last * r.dt),
      replay: r, numbers: data.scene.numbers, colours: colours,
      camera: Object.assign({ target: view.target }, camera)
    });
    var over = time >= r.last * r.dt - 1e-9 && view.element.classList.contains('bad');
    view.element.classList.toggle('over', over);
    view.badge.hidden = !over;
  }
  var curves = list(doc, '#curves .curve').map(function (element) {
    return { element: element, episode: Number(element.dataset.e || 0), key: element.dataset.key, digits: Number(element.dataset.digits), plot: element.querySelector('.plot'),
             now: element.querySelector('.now'), values: list(element, 'output') };
  });
  function number(value, digits) { return isNaN(value) ? '\u2013' : value.toFixed(digits); }
  function drawCurves() {
    curves.forEach(function (curve) {
      curve.now.style.left = (end > 0 ? time / end * 100 : 0) + '%';
      curve.values.forEach(function (output, i) {
        var r = replays[curve.episode * beside + i], f = Math.round(time / r.dt);
        output.textContent = f > r.last ? '\u2013' : number(r.values[curve.key](f), curve.digits);
      });
    });
  }
  var seek = byId('seek'), clock = byId('clock'), play = byId('play'), waiting = false;
  function draw() {
    waiting = false;
    views.forEach(drawView);
    drawCurves();
    var step = Math.round(time / dt);
    seek.value = String(step);
    clock.textContent = timed ? time.toFixed(2) + ' / ' + end.toFixed(2) + ' s' : '';
    byId('step').textContent = text.step + ' ' + step + ' / ' + last;
    seek.setAttribute('aria-valuetext', timed ? time.toFixed(2) + ' s' : text.step + ' ' + step);
  }
  function redraw() {
    if (!waiting && !playing) {
      waiting = true;
      requestAnimationFrame(draw);
    }
  }

  //-------------------------------- playing --------------------------------

  var before = null;
  function tick(now) {
    if (!playing) return;
    // After the page was hidden for a while, playing continues where it was.
    if (before !== null) time = Math.min(end, time + Math.min(now - before, 100) / 1000 * speed * rate);
    before = now;
    draw();
    if (time >= end) setPlaying(false);
    else requestAnimationFrame(tick);
  }
  function setPlaying(on) {
    if (on && !playing && time >= end) time = 0;
    var start = on && !playing;
    playing = on;
    before = null;
    play.textContent = on ? text.pause : text.play;
    play.setAttribute('aria-pressed', String(on));
    if (start) requestAnimationFrame(tick);
  }
  function goTo(seconds) {
    setPlaying(false);
    time = Math.min(end, Math.max(0, seconds));
    redraw();
  }
  function stepBy(n) { goTo((Math.round(time / dt) + n) * dt); }
  play.addEventListener('click', function () { setPlaying(!playing); });
  seek.addEventListener('input', function () { goTo(Number(seek.value) * dt); });
  var SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8], speeds = byId('speed');
  function setSpeed(index) {
    index = Math.min(SPEEDS.length - 1, Math.max(0, index));
    speed = SPEEDS[index];
    speeds.value = String(index);
    speeds.setAttribute('aria-valuetext', speed + '\u00d7');
    speeds.parentNode.querySelector('output').textContent = speed + '\u00d7';
  }
  speeds.addEventListener('input', function () { setSpeed(Number(speeds.value)); });
  function changeSpeed(by) { setSpeed(Number(speeds.value) + by); }
  curves.forEach(function (curve) {
    function at(event) {
      var box = curve.plot.getBoundingClientRect();
      goTo(Math.round((event.clientX - box.left) / box.width * last) * dt);
    }
    curve.plot.addEventListener('pointerdown', at);
    curve.plot.addEventListener('pointermove', function (event) { if (event.buttons) at(event); });
  });

  //-------------------------------- the run --------------------------------

  // A curve of training shows the point that the pointer or an arrow key chose, else its initial point.
  list(doc, '#training .curve').forEach(function (element, i) {
    var of = data.training.curves[i], plot = element.querySelector('.plot'), at;
    var now = element.querySelector('.now'), read = element.querySelector('.read');
    function choose(index, seen) {
      at = Math.min(of.steps.length - 1, Math.max(0, index));
      var where = data.training.step + ' ' + of.steps[at];
      now.style.left = of.steps[at] / data.training.last * 100 + '%';
      element.classList.toggle('chosen', seen);
      read.querySelector('span').textContent = where;
      read.querySelector('output').textContent = of.values[at];
      plot.setAttribute('aria-valuenow', String(of.steps[at]));
      plot.setAttribute('aria-valuetext', where + ', ' + of.values[at]);
    }
    function leave() { if (doc.activeElement !== plot) choose(of.at, false); }
    function point(event) {
      var box = plot.getBoundingClientRect(), best = 0;
      var step = (event.clientX - box.left) / box.width * data.training.last;
      of.steps.forEach(function (s, k) {
        if (Math.abs(s - step) < Math.abs(of.steps[best] - step)) best = k;
      });
      choose(best, true);
    }
    plot.setAttribute('role', 'slider');
    plot.setAttribute('aria-label', element.querySelector('b').textContent);
    plot.setAttribute('aria-valuemin', String(of.steps[0]));
    plot.setAttribute('aria-valuemax', String(of.steps[of.steps.length - 1]));
    plot.tabIndex = 0;
    plot.addEventListener('pointermove', point);
    plot.addEventListener('pointerdown', point);
    plot.addEventListener('pointerleave', leave);
    plot.addEventListener('focus', function () { choose(at, true); });
    plot.addEventListener('blur', function () { choose(of.at, false); });
    plot.addEventListener('keydown', function (event) {
      var to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: of.steps.length - 1 }[event.key];
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      choose(to, true);
    });
    choose(of.at, false);
  });

  //-------------------------------- choosing --------------------------------

  var show = byId('show'), episodes = byId('episode'), chosen = 'both';
  function choose(which) {
    chosen = which;
    byId('stage').className = which === 'both' ? '' : 'one';
    views.forEach(function (view) {
      view.element.hidden = view.episode !== episode || (which !== 'both' && which !== String(view.which));
    });
    if (show) {
      list(show, 'button').forEach(function (button) {
        button.setAttribute('aria-pressed', String(button.dataset.v === which));
      });
    }
    redraw();
  }
  function chooseEpisode(number) {
    episode = number;
    last = views.reduce(function (n, view) {
      return view.episode === episode ? Math.max(n, view.replay.last) : n;
    }, 0);
    end = last * dt;
    time = 0;
    seek.max = String(last);
    curves.forEach(function (curve) { curve.element.hidden = curve.episode !== episode; });
    choose(chosen);
  }
  if (episodes) {
    episodes.addEventListener('change', function () { chooseEpisode(Number(episodes.value)); });
  }
  if (show) {
    show.addEventListener('click', function (event) {
      var button = event.target.closest('button');
      if (button) choose(button.dataset.v);
    });
  }

  //-------------------------------- the camera --------------------------------

  var turns = Boolean(brimScene.camera);
  doc.documentElement.classList.toggle('turns', turns);
  function setFollow(on) {
    if (!turns) return;
    follow = on;
    following.setAttribute('aria-pressed', String(on));
    redraw();
  }
  function turn(da, de) {
    if (!turns) return;
    camera.azimuth += da;
    camera.elevation = Math.min(1.5, Math.max(0.02, camera.elevation + de));
    redraw();
  }
  function zoom(factor) {
    if (!turns) return;
    camera.distance = Math.min(14, Math.max(1.2, camera.distance * factor));
    redraw();
  }
  function reset() {
    Object.assign(camera, START);
    setFollow(true);
  }
  if (turns) {
    following.addEventListener('click', function () { setFollow(!follow); });
    byId('reset').addEventListener('click', reset);
  }
  views.forEach(function (view) {
    var fingers = new Map();
    function spread() {
      var p = Array.from(fingers.values());
      return Math.hypot(p[0].x - p[1].x, p[0].y - p[1].y);
    }
    view.canvas.addEventListener('pointerdown', function (event) {
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      // Fails if the pointer is gone. Without the capture, dragging ends at the edge of the canvas.
      try { view.canvas.setPointerCapture(event.pointerId); } catch (error) { fingers.clear(); }
    });
    view.canvas.addEventListener('pointermove', function (event) {
      var p = fingers.get(event.pointerId);
      if (!p) return;
      var wide = fingers.size === 2 ? spread() : 0, dx = event.clientX - p.x, dy = event.clientY - p.y;
      p.x = event.clientX;
      p.y = event.clientY;
      if (wide) zoom(wide / Math.max(spread(), 1));
      else turn(-dx * 0.008, dy * 0.006);
    });
    ['pointerup', 'pointercancel', 'lostpointercapture'].forEach(function (name) {
      view.canvas.addEventListener(name, function (event) { fingers.delete(event.pointerId); });
    });
    // The wheel scrolls the page unless the picture has the focus.
    view.canvas.addEventListener('wheel', function (event) {
      if (!turns || (doc.activeElement !== view.canvas && !event.ctrlKey)) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.001));
    }, { passive: false });
    view.canvas.addEventListener('keydown', function (event) {
      var ways = { ArrowLeft: [0.08, 0], ArrowRight: [-0.08, 0], ArrowUp: [0, 0.06], ArrowDown: [0, -0.06] };
      if (!turns || !ways[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      turn(ways[event.key][0], ways[event.key][1]);
    });
  });
  var keys = {
    ' ': function () { setPlaying(!playing); },
    ',': function () { stepBy(-1); }, '.': function () { stepBy(1); },
    '[': function () { changeSpeed(-1); }, ']': function () { changeSpeed(1); },
    '+': function () { zoom(0.9); }, '=': function () { zoom(0.9); }, '-': function () { zoom(1.1); },
    f: function () { setFollow(!follow); }, '0': reset,
    Home: function () { goTo(0); }, End: function () { goTo(end); }
  };
  doc.addEventListener('keydown', function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    // The focused element gets its own keys. Sliders do not use the space key, so it plays, also after seeking.
    var own = event.target.closest('button, select, input, a');
    if (own && (event.key === ' ' ? own.type !== 'range' : event.key.length > 1)) return;
    event.preventDefault();
    keys[event.key]();
  });

  //-------------------------------- the beginning --------------------------------

  function repaint() { readColours(); redraw(); if (playing) draw(); }
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  window.addEventListener('resize', redraw);
  window.addEventListener('beforeprint', function () {
    paper = true;
    doc.documentElement.classList.add('paper');
    readColours();
    draw();
  });
  window.addEventListener('afterprint', function () {
    paper = false;
    doc.documentElement.classList.remove('paper');
    repaint();
  });
  // Plays at once, unless the address names a time or the reader prefers reduced motion.
  var wanted = /[#&]t=([\d.]+)/.exec(location.hash), alone = /[#&]show=(\d)/.exec(location.hash);
  var turned = /[#&]camera=(-?[\d.]+),(-?[\d.]+),([\d.]+)/.exec(location.hash);
  if (turned) {
    turn(Number(turned[1]) - camera.azimuth, Number(turned[2]) - camera.elevation);
    zoom(Number(turned[3]) / camera.distance);
  }
  readColours();
  setSpeed(SPEEDS.indexOf(1));
  var first = /[#&]episode=(\d)/.exec(location.hash);
  if (alone && Number(alone[1]) < beside) chosen = alone[1];
  if (episodes) episodes.value = first && Number(first[1]) < data.choices ? first[1] : '0';
  chooseEpisode(episodes ? Number(episodes.value) : 0);
  if (wanted) goTo(Number(wanted[1]));
  else if (window.matchMedia('(prefers-reduced-motion: reduce)').matches) goTo(0);
  else setPlaying(true);
  draw();
})();
