// The quadruped of a replay page on a 2-D canvas: own projection, primitives sorted from the back to
// the front. A sphere is a picture with every pixel shaded; the side of a capsule is a gradient
// across it by the same function, so that the two meet without an edge. No WebGL: it works everywhere
// and prints. Metres, z up; the view has x to the right, y up, z towards the reader. replay.js describes
// the interface. Parts: qpos, and as events pushes (m/s).
// needs parts.qpos parts.pushes
'use strict';
var brimScene = (function () {
  var ROOT = Math.SQRT2, TORSO = 0.25, LIMB = 0.08;
  var SIGN = [1, -1, -1, 1];  // the direction in which each ankle bends

  //-------------------------------- vectors --------------------------------

  function sub(a, b) { return [a[0] - b[0], a[1] - b[1], a[2] - b[2]]; }
  function dot(a, b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
  function along(a, d, s) { return [a[0] + d[0] * s, a[1] + d[1] * s, a[2] + d[2] * s]; }
  function cross(a, b) {
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  }
  function unit(a) {
    var n = Math.sqrt(dot(a, a)) || 1;
    return [a[0] / n, a[1] / n, a[2] / n];
  }

  //-------------------------------- the body --------------------------------

  // Transforms a point from the torso's frame to the world; q is qpos: x y z, quaternion w x y z.
  function place(q, p) {
    var w = q[3], v = [q[4], q[5], q[6]], n = w * w + dot(v, v) || 1;
    var t = cross(v, p), u = cross(v, t);
    return [0, 1, 2].map(function (i) { return q[i] + p[i] + 2 * (w * t[i] + u[i]) / n; });
  }
  // The torso and the three capsules of each leg, in the world.
  function body(q) {
    var parts = [{ kind: 'torso', a: [q[0], q[1], q[2]], r: TORSO }];
    for (var k = 0; k < 4; k++) {
      var phi = (45 + 90 * k) * Math.PI / 180, a = phi + q[7 + 2 * k], b = SIGN[k] * q[8 + 2 * k];
      var out = [Math.cos(phi), Math.sin(phi), 0], u = [Math.cos(a), Math.sin(a), 0];
      var d = [Math.cos(b) * u[0], Math.cos(b) * u[1], -Math.sin(b)];
      var hip = along([0, 0, 0], out, 0.2 * ROOT), knee = along(hip, u, 0.2 * ROOT);
      var foot = along(knee, d, 0.4 * ROOT), kind = k === 0 || k === 3 ? 'front' : 'rear';
      // The welded capsule begins at the torso's centre; its part inside the torso is invisible.
      var skin = along([0, 0, 0], out, Math.sqrt(TORSO * TORSO - LIMB * LIMB));
      hip = place(q, hip);
      knee = place(q, knee);
      parts.push({ kind: 'joint', a: place(q, skin), b: hip, r: LIMB, open: true });
      parts.push({ kind: kind, a: hip, b: knee, r: LIMB });
      parts.push({ kind: kind, a: knee, b: place(q, foot), r: LIMB });
    }
    return parts;
  }

  //-------------------------------- the camera --------------------------------

  // camera: target, azimuth, elevation (radians), distance. -> functions on world points.
  function view(camera, width, height) {
    var ce = Math.cos(camera.elevation), se = Math.sin(camera.elevation);
    var back = [ce * Math.cos(camera.azimuth), ce * Math.sin(camera.azimuth), se];
    var right = [-Math.sin(camera.azimuth), Math.cos(camera.azimuth), 0], up = cross(back, right);
    var eye = along(camera.target, back, camera.distance), f = Math.min(width, height * 1.35) * 1.25;
    return {
      near: 0.15, eye: eye,
      // [x, y in pixels, depth, pixels per metre there]
      at: function (p) {
        var v = sub(p, eye), z = -dot(v, back), s = f / Math.max(z, 0.15);
        return [width / 2 + dot(v, right) * s, height * 0.5 - dot(v, up) * s, z, s];
      },
      turn: function (d) { return [dot(d, right), dot(d, up), dot(d, back)]; }
    };
  }

  //-------------------------------- shading --------------------------------

  var LIGHT = unit([-0.45, 0.8, 0.55]), HALF = unit([-0.45, 0.8, 1.55]);
  // The colour of a surface with the normal n (in the view).
  function shade(base, n) {
    var d = Math.max(0, dot(n, LIGHT)), spec = Math.pow(Math.max(0, dot(n, HALF)), 36) * 0.3;
    var rim = 0.78 + 0.22 * Math.min(1, Math.max(0, n[2]) * 2.2);
    var k = (0.5 + 0.1 * n[1] + 0.52 * d) * rim;
    return base.map(function (c) { return Math.min(255, c * k + 255 * spec); });
  }
  function css(c) {
    return 'rgb(' + Math.round(c[0]) + ',' + Math.round(c[1]) + ',' + Math.round(c[2]) + ')';
  }
  var pictures = {};
  function ball(base) {
    var key = base.join();
    if (pictures[key]) return pictures[key];
    var size = 192, canvas = document.createElement('canvas'), middle = (size - 1) / 2;
    canvas.width = canvas.height = size;
    var ctx = canvas.getContext('2d'), image = ctx.createImageData(size, size), r = size / 2 - 1;
    for (var y = 0; y < size; y++) {
      for (var x = 0; x < size; x++) {
        var nx = (x - middle) / r, ny = (middle - y) / r, far = Math.sqrt(nx * nx + ny * ny);
        var cover = Math.min(1, Math.max(0, (1 - far) * r + 0.5)), at = 4 * (y * size + x);
        if (far > 1) { nx /= far; ny /= far; }
        var c = shade(base, [nx, ny, Math.sqrt(Math.max(0, 1 - nx * nx - ny * ny))]);
        for (var i = 0; i < 3; i++) image.data[at + i] = c[i];
        image.data[at + 3] = 255 * cover;
      }
    }
    ctx.putImageData(image, 0, 0);
    return (pictures[key] = canvas);
  }
  function drawBall(ctx, base, p, r) {
    var px = r * p[3] * 96 / 95;  // the picture has a margin of one pixel
    ctx.drawImage(ball(base), p[0] - px, p[1] - px, 2 * px, 2 * px);
  }
  function drawLimb(ctx, base, v, part) {
    var p = v.at(part.a), q = v.at(part.b), axis = unit(v.turn(sub(part.b, part.a)));
    var flat = Math.hypot(axis[0], axis[1]), n = 10, i, t;
    var caps = part.open ? [q] : p[2] > q[2] ? [p, q] : [q, p];
    caps.forEach(function (end) { drawBall(ctx, base, end, part.r); });
    if (flat < 0.03) return;
    var side = [-axis[1] / flat, axis[0] / flat, 0];
    var front = [-axis[2] * axis[0] / flat, -axis[2] * axis[1] / flat, flat];
    function normal(s) {
      var c = Math.sqrt(Math.max(0, 1 - s * s));
      return [side[0] * s + front[0] * c, side[1] * s + front[1] * c, front[2] * c];
    }
    // The visible side ends where the caps begin, in a half circle that is seen at an angle.
    function edge(end, s) {
      var m = normal(s), r = part.r * end[3];
      ctx.lineTo(end[0] + m[0] * r, end[1] - m[1] * r);
    }
    ctx.beginPath();
    for (i = 0; i <= n; i++) edge(p, Math.sin((i / n - 0.5) * Math.PI));
    for (i = n; i >= 0; i--) edge(q, Math.sin((i / n - 0.5) * Math.PI));
    ctx.closePath();
    var cx = (p[0] + q[0]) / 2, cy = (p[1] + q[1]) / 2, r = part.r * (p[3] + q[3]) / 2;
    var paint = ctx.createLinearGradient(cx - side[0] * r, cy + side[1] * r,
                                         cx + side[0] * r, cy - side[1] * r);
    for (i = 0; i <= 12; i++) {
      t = Math.sin((i / 12 - 0.5) * Math.PI);
      paint.addColorStop((t + 1) / 2, css(shade(base, normal(t))));
    }
    ctx.fillStyle = paint;
    ctx.fill();
  }

  //-------------------------------- the floor --------------------------------

  function polygon(ctx, v, points) {
    var seen = points.map(v.at);
    if (seen.some(function (p) { return p[2] < v.near; })) return false;
    seen.forEach(function (p, i) {
      if (i) ctx.lineTo(p[0], p[1]);
      else ctx.moveTo(p[0], p[1]);
    });
    ctx.closePath();
    return true;
  }
  // Tiles of half a metre around a point, fading with their distance from it.
  function drawFloor(ctx, v, colours, centre) {
    var step = 0.5, reach = 13, x0 = Math.round(centre[0] / step), y0 = Math.round(centre[1] / step);
    for (var i = x0 - reach; i < x0 + reach; i++) {
      for (var k = y0 - reach; k < y0 + reach; k++) {
        var x = i * step, y = k * step;
        var far = Math.hypot(x + step / 2 - centre[0], y + step / 2 - centre[1]) / (reach * step);
        if (far >= 1) continue;
        ctx.globalAlpha = Math.pow(1 - far * far, 1.6);
        ctx.beginPath();
        if (!polygon(ctx, v, [[x, y, 0], [x + step, y, 0], [x + step, y + step, 0], [x, y + step, 0]])) continue;
        if ((i + k) % 2) {
          ctx.fillStyle = colours.tile;
          ctx.fill();
        }
        ctx.strokeStyle = colours.grid;
        ctx.lineWidth = 1;
        ctx.stroke();
      }
    }
    ctx.globalAlpha = 1;
  }
  // The outline of two circles on the floor and their common tangents.
  function stadium(a, b, ra, rb) {
    var far = Math.hypot(b[0] - a[0], b[1] - a[1]), angle = Math.atan2(b[1] - a[1], b[0] - a[0]);
    var points = [], n = 9;
    function arc(p, r, from, to) {
      for (var i = 0; i <= n; i++) {
        var t = from + (to - from) * i / n;
        points.push([p[0] + r * Math.cos(t), p[1] + r * Math.sin(t), 0]);
      }
    }
    if (far <= Math.abs(ra - rb)) {  // one is inside the other
      arc(ra > rb ? a : b, Math.max(ra, rb), 0, 2 * Math.PI);
      return points;
    }
    var touch = Math.acos((ra - rb) / far);
    arc(a, ra, angle + touch, angle + 2 * Math.PI - touch);
    arc(b, rb, angle - touch, angle + touch);
    return points;
  }
  // Shadows of light from straight above, in layers from wide to narrow; higher parts have wider and fainter shadows.
  // All parts of a layer are one path, so that overlaps are not darker.
  function drawShadow(ctx, v, colours, parts) {
    var layers = 9, fade = 1 / (1 + Math.max(0, parts[0].a[2] - 0.7) * 1.5);
    ctx.fillStyle = colours.shadow;
    for (var k = 0; k < layers; k++) {
      var f = k / (layers - 1);
      ctx.beginPath();
      parts.forEach(function (part) {
        var b = part.b || part.a;
        function wide(p) {
          var lift = Math.min(1, Math.max(0, p[2] - part.r));
          return Math.max(0.01, part.r * (1.25 - 0.55 * f) + lift * (0.28 - 0.34 * f));
        }
        polygon(ctx, v, stadium(part.a, b, wide(part.a), wide(b)));
      });
      ctx.globalAlpha = (colours.dark ? 0.07 : 0.035) * fade;
      ctx.fill('nonzero');
    }
    ctx.globalAlpha = 1;
  }
  // The trail of the torso.
  function drawTrail(ctx, v, colours, trail) {
    ctx.strokeStyle = colours.trail;
    ctx.lineWidth = 2;
    ctx.globalAlpha = 0.75;
    ctx.beginPath();
    var before = false;
    trail.forEach(function (p) {
      var s = v.at([p[0], p[1], 0.002]), ok = s[2] > v.near;
      if (ok && before) ctx.lineTo(s[0], s[1]);
      else if (ok) ctx.moveTo(s[0], s[1]);
      before = ok;
    });
    ctx.stroke();
    ctx.globalAlpha = 1;
  }

  //-------------------------------- pushes --------------------------------

  // push: velocity, alpha 0..1, text. The arrow ends at the torso; a harder push has a longer arrow.
  function drawPush(ctx, v, colours, q, push, width) {
    var speed = Math.hypot(push.v[0], push.v[1], push.v[2]), dir = unit(push.v);
    var centre = [q[0], q[1], q[2]], tip = v.at(along(centre, dir, -0.3));
    var tail = v.at(along(centre, dir, -(0.6 + 0.1 * Math.min(speed, 6))));
    if (tip[2] < v.near || tail[2] < v.near) return;
    var dx = tip[0] - tail[0], dy = tip[1] - tail[1], n = Math.hypot(dx, dy) || 1;
    var head = Math.min(0.14 * tip[3], n * 0.6), w0 = 0.028 * tail[3], w1 = 0.028 * tip[3];
    var hw = 0.085 * tip[3];
    dx /= n;
    dy /= n;
    var neck = [tip[0] - dx * head, tip[1] - dy * head];
    ctx.globalAlpha = push.alpha;
    ctx.beginPath();
    [[tail, w0], [neck, w1], [neck, hw], [tip, 0], [neck, -hw], [neck, -w1], [tail, -w0]]
      .forEach(function (e) { ctx.lineTo(e[0][0] - dy * e[1], e[0][1] + dx * e[1]); });
    ctx.closePath();
    ctx.fillStyle = colours.push;
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = colours.background;
    ctx.stroke();
    ctx.font = '600 13px system-ui, sans-serif';
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.lineWidth = 4;
    ctx.lineJoin = 'round';
    // The text is behind the arrow and inside the picture.
    var half = ctx.measureText(push.text).width / 2 + 4, ty = tail[1] - dy * 14;
    var tx = Math.min(width - half, Math.max(half, tail[0] - dx * (half + 6)));
    ctx.strokeText(push.text, tx, ty);
    ctx.fillText(push.text, tx, ty);
    ctx.globalAlpha = 1;
  }

  // The pushes of the last 0.9 s of the episode, fading; in slow replays that is the same part of the episode.
  function pushesAt(r, now) {
    return r.events.pushes.map(function (p) {
      var age = now - p[0] * r.dt;
      return { age: age, v: [p[1], p[2], p[3]], alpha: Math.min(1, (0.9 - age) / 0.4),
               text: Math.hypot(p[1], p[2], p[3]).toFixed(2) + ' m/s' };
    }).filter(function (p) { return p.age > -1e-6 && p.age < 0.9; });
  }
  function trailOf(r, frame, q) {
    var points = [], step = Math.max(1, Math.floor(frame / 400)), qpos = r.parts.qpos;
    for (var i = 0; i < frame; i += step) points.push([qpos[i * 15], qpos[i * 15 + 1]]);
    return points.concat([[q[0], q[1]]]);
  }

  //-------------------------------- all of it --------------------------------

  function paints(colours) {
    return {
      sky: colours.of('sky'), background: colours.of('ground'), tile: colours.of('tile'),
      grid: colours.of('grid'), shadow: colours.of('shadow'), trail: colours.of('trail'),
      push: colours.of('push'), torso: colours.rgb('torso'), joint: colours.rgb('joint'),
      front: colours.rgb('front'), rear: colours.rgb('rear'), dark: colours.dark
    };
  }
  function draw(ctx, width, height, s) {
    var v = view(s.camera, width, height), c = paints(s.colours), q = s.at.qpos, parts = body(q);
    var paint = ctx.createLinearGradient(0, 0, 0, height);
    paint.addColorStop(0, c.sky);
    paint.addColorStop(0.55, c.background);
    ctx.fillStyle = paint;
    ctx.fillRect(0, 0, width, height);
    drawFloor(ctx, v, c, s.camera.target);
    drawTrail(ctx, v, c, trailOf(s.replay, s.frame, q));
    drawShadow(ctx, v, c, parts);
    parts.map(function (part) {
      var b = part.b || part.a;
      return { part: part, depth: v.at([0, 1, 2].map(function (i) { return (part.a[i] + b[i]) / 2; }))[2] };
    }).sort(function (a, b) { return b.depth - a.depth; }).forEach(function (item) {
      var part = item.part;
      if (item.depth < v.near + part.r) return;
      if (part.b) drawLimb(ctx, c[part.kind], v, part);
      else drawBall(ctx, c[part.kind], v.at(part.a), part.r);
    });
    pushesAt(s.replay, s.time).forEach(function (push) { drawPush(ctx, v, c, q, push, width); });
  }
  // Positions and angles linearly, the quaternion along the shorter way.
  function mix(part, a, b, s) {
    var same = 0, k;
    for (k = 3; k < 7; k++) same += a[k] * b[k];
    return a.map(function (value, i) {
      var to = i > 2 && i < 7 && same < 0 ? -b[i] : b[i];
      return value * (1 - s) + to * s;
    });
  }
  // The camera follows upwards only if the torso would leave the picture, so that sinking stays visible.
  function target(at) { return [at.qpos[0], at.qpos[1], 0.36 + Math.max(0, at.qpos[2] - 0.65)]; }
  return { draw: draw, mix: mix, target: target, body: body,
           camera: { azimuth: -0.95, elevation: 0.3, distance: 3.3 } };
})();
