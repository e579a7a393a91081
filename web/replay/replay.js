// A replay page: takes the trajectories out of the page, plays them, and moves the camera. Drawing is
// scene.js's. Texts come from the page, in its language; none is put in as HTML.
// page.html#t=2.5 stops at 2.5 s; #show=0 shows the first alone.
'use strict';
(function () {
  var doc = document;
  function byId(id) { return doc.getElementById(id); }
  function list(root, query) { return Array.prototype.slice.call(root.querySelectorAll(query)); }
  doc.documentElement.classList.add('scripted');
  var data = JSON.parse(byId('data').textContent), text = data.text;

  //-------------------------------- trajectories --------------------------------

  // brim.trajectory/1: base64 of zigzag differences in groups of seven bits.
  function decode(base64, scale, columns, rows) {
    var bytes = atob(base64), at = 0, out = new Float32Array(columns * rows), now = new Array(columns).fill(0);
    for (var i = 0; i < columns * rows; i++) {
      var value = 0, weight = 1, byte = 128;
      // Above 32 bits shifts would not do.
      for (; byte >= 128; weight *= 128) {
        byte = bytes.charCodeAt(at++);
        value += byte % 128 * weight;
      }
      now[i % columns] += value % 2 ? -(value + 1) / 2 : value / 2;
      out[i] = now[i % columns] * scale;
    }
    return out;
  }
  function tilt(q, at) {
    var w = q[at + 3], x = q[at + 4], y = q[at + 5], z = q[at + 6];
    var n = w * w + x * x + y * y + z * z;
    return Math.acos(Math.min(1, Math.max(-1, 1 - 2 * (x * x + y * y) / n))) * 180 / Math.PI;
  }
  var replays = data.replays.map(function (r) {
    var qpos = decode(r.qpos, r.scale, 15, r.frames);
    return {
      dt: r.dt, frames: r.frames, last: r.frames - 1, outcome: r.outcome, pushes: r.pushes, qpos: qpos,
      reward: decode(r.reward, r.scale, 1, r.frames - 1),
      values: {
        height: function (i) { return qpos[i * 15 + 2]; },
        tilt: function (i) { return tilt(qpos, i * 15); }
      }
    };
  });
  replays.forEach(function (r) {
    r.values.reward = function (i) { return r.last ? r.reward[Math.min(i, r.last - 1)] : NaN; };
  });
  var dt = replays[0].dt;
  var last = replays.reduce(function (n, r) { return Math.max(n, r.last); }, 0), end = last * dt;

  // qpos between two frames: angles and places by halves, the quaternion along the shorter way.
  function stateAt(r, time) {
    var f = Math.min(time / r.dt, r.last), i = Math.min(Math.floor(f), Math.max(r.last - 1, 0));
    var s = f - i, a = i * 15, b = Math.min(i + 1, r.last) * 15, q = [], same = 0, k;
    for (k = 3; k < 7; k++) same += r.qpos[a + k] * r.qpos[b + k];
    for (k = 0; k < 15; k++) {
      var to = k > 2 && k < 7 && same < 0 ? -r.qpos[b + k] : r.qpos[b + k];
      q.push(r.qpos[a + k] * (1 - s) + to * s);
    }
    return q;
  }

  //-------------------------------- the picture --------------------------------

  var START = { azimuth: -0.95, elevation: 0.3, distance: 3.3 };
  var camera = Object.assign({}, START), follow = true, colours;
  var views = list(byId('stage'), '.view').map(function (element, i) {
    var canvas = element.querySelector('canvas');
    return { element: element, canvas: canvas, ctx: canvas.getContext('2d'), replay: replays[i],
             badge: element.querySelector('.badge'), target: null };
  });
  var time = 0, playing = false, speed = 1, paper = false;

  function readColours() {
    var style = getComputedStyle(doc.documentElement);
    function value(name) { return style.getPropertyValue('--' + name).trim(); }
    function rgb(name) { return value(name).split(/\s+/).map(Number); }
    colours = {
      sky: value('sky'), background: value('ground'), tile: value('tile'), grid: value('grid'),
      shadow: value('shadow'), trail: value('trail'), push: value('push'),
      torso: rgb('torso'), joint: rgb('joint'), front: rgb('front'), rear: rgb('rear'),
      dark: value('shadow-strong') === '1'
    };
  }
  function trailOf(r, frame) {
    var points = [], step = Math.max(1, Math.floor(frame / 400));
    for (var i = 0; i < frame; i += step) points.push([r.qpos[i * 15], r.qpos[i * 15 + 1]]);
    return points;
  }
  // Shown for a while from the step it came before; of slow replays not longer.
  function pushesAt(r, now) {
    return r.pushes.map(function (p) {
      var age = now - p[0] * r.dt;
      return { age: age, v: [p[1], p[2], p[3]], alpha: Math.min(1, (0.9 - age) / 0.4),
               text: Math.hypot(p[1], p[2], p[3]).toFixed(2) + ' m/s' };
    }).filter(function (p) { return p.age > -1e-6 && p.age < 0.9; });
  }
  function drawView(view) {
    var r = view.replay, box = view.canvas.getBoundingClientRect(), q = stateAt(r, time);
    if (!box.width) return;
    var ratio = Math.min(window.devicePixelRatio || 1, 2) * (paper ? 2 : 1);
    var width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    if (view.canvas.width !== width || view.canvas.height !== height) {
      view.canvas.width = width;
      view.canvas.height = height;
    }
    // Followed up only where it would leave the picture: a sinking torso is seen as one.
    if (follow || !view.target) view.target = [q[0], q[1], 0.36 + Math.max(0, q[2] - 0.65)];
    view.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    brimScene.draw(view.ctx, box.width, box.height, {
      q: q, camera: Object.assign({ target: view.target }, camera), colours: colours,
      trail: trailOf(r, Math.min(Math.floor(time / r.dt), r.last)).concat([[q[0], q[1]]]),
      pushes: pushesAt(r, Math.min(time, r.last * r.dt))
    });
    var over = time >= r.last * r.dt - 1e-9 && r.outcome !== 'lasted';
    view.element.classList.toggle('over', over);
    view.badge.hidden = !over;
  }
  var curves = list(doc, '.curve').map(function (element) {
    return { key: element.dataset.key, digits: Number(element.dataset.digits), plot: element.querySelector('.plot'),
             now: element.querySelector('.now'), values: list(element, 'output') };
  });
  function number(value, digits) { return isNaN(value) ? '\u2013' : value.toFixed(digits); }
  function drawCurves() {
    curves.forEach(function (curve) {
      curve.now.style.left = (end > 0 ? time / end * 100 : 0) + '%';
      curve.values.forEach(function (output, i) {
        var r = replays[i], f = Math.round(time / r.dt);
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
    clock.textContent = time.toFixed(2) + ' / ' + end.toFixed(2) + ' s';
    byId('step').textContent = text.step + ' ' + step + ' / ' + last;
    seek.setAttribute('aria-valuetext', time.toFixed(2) + ' s');
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
    // A page that was not shown for a while goes on where it was.
    if (before !== null) time = Math.min(end, time + Math.min(now - before, 100) / 1000 * speed);
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
  seek.max = String(last);
  seek.addEventListener('input', function () { goTo(Number(seek.value) * dt); });
  var rate = byId('speed');
  rate.addEventListener('change', function () { speed = Number(rate.value); });
  function changeSpeed(by) {
    rate.selectedIndex = Math.min(rate.options.length - 1, Math.max(0, rate.selectedIndex + by));
    speed = Number(rate.value);
  }
  curves.forEach(function (curve) {
    function at(event) {
      var box = curve.plot.getBoundingClientRect();
      goTo(Math.round((event.clientX - box.left) / box.width * last) * dt);
    }
    curve.plot.addEventListener('pointerdown', at);
    curve.plot.addEventListener('pointermove', function (event) { if (event.buttons) at(event); });
  });

  //-------------------------------- choosing --------------------------------

  var show = byId('show');
  function choose(which) {
    byId('stage').className = which === 'both' ? '' : 'one';
    views.forEach(function (view, i) { view.element.hidden = which !== 'both' && which !== String(i); });
    if (show) {
      list(show, 'button').forEach(function (button) {
        button.setAttribute('aria-pressed', String(button.dataset.v === which));
      });
    }
    redraw();
  }
  if (show) {
    show.addEventListener('click', function (event) {
      var button = event.target.closest('button');
      if (button) choose(button.dataset.v);
    });
  }

  //-------------------------------- the camera --------------------------------

  var following = byId('follow');
  function setFollow(on) {
    follow = on;
    following.setAttribute('aria-pressed', String(on));
    redraw();
  }
  function turn(da, de) {
    camera.azimuth += da;
    camera.elevation = Math.min(1.5, Math.max(0.02, camera.elevation + de));
    redraw();
  }
  function zoom(factor) {
    camera.distance = Math.min(14, Math.max(1.2, camera.distance * factor));
    redraw();
  }
  function reset() {
    Object.assign(camera, START);
    setFollow(true);
  }
  following.addEventListener('click', function () { setFollow(!follow); });
  byId('reset').addEventListener('click', reset);
  views.forEach(function (view) {
    var fingers = new Map();
    function spread() {
      var p = Array.from(fingers.values());
      return Math.hypot(p[0].x - p[1].x, p[0].y - p[1].y);
    }
    view.canvas.addEventListener('pointerdown', function (event) {
      fingers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      // A pointer that is gone cannot be held; then the move ends at the canvas's edge.
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
    // The page scrolls unless the picture was chosen first.
    view.canvas.addEventListener('wheel', function (event) {
      if (doc.activeElement !== view.canvas && !event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.001));
    }, { passive: false });
    view.canvas.addEventListener('keydown', function (event) {
      var turns = { ArrowLeft: [0.08, 0], ArrowRight: [-0.08, 0], ArrowUp: [0, 0.06], ArrowDown: [0, -0.06] };
      if (!turns[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      turn(turns[event.key][0], turns[event.key][1]);
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
    // What has the focus takes its own keys.
    if (event.target.closest('button, select, input, a') && (event.key === ' ' || event.key.length > 1)) return;
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
  // The middle of it where the page stands still: at the beginning nothing has happened yet.
  var wanted = /[#&]t=([\d.]+)/.exec(location.hash), alone = /[#&]show=(\d)/.exec(location.hash);
  var turned = /[#&]camera=(-?[\d.]+),(-?[\d.]+),([\d.]+)/.exec(location.hash);
  if (turned) {
    turn(Number(turned[1]) - camera.azimuth, Number(turned[2]) - camera.elevation);
    zoom(Number(turned[3]) / camera.distance);
  }
  readColours();
  rate.value = '1';
  choose(alone && views[alone[1]] ? alone[1] : 'both');
  if (wanted) goTo(Number(wanted[1]));
  else if (window.matchMedia('(prefers-reduced-motion: reduce)').matches) goTo(0);
  else setPlaying(true);
  draw();
})();
