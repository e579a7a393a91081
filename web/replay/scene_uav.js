// The grid world of a replay page, from above: obstacles, covered cells, UAVs with their trails, goals.
// replay.js describes the interface. Parts: counts (covered cells or goals reached, percent,
// collisions), uavs (x, y of each), what (bits of each: 1 blocked, 2 stopped, 4 found something), goals (x, y of
// each; left out: the task is coverage), walls and covered (16 cells to a number).
// needs parts.uavs parts.what parts.walls numbers.size
'use strict';
var brimScene = (function () {
  var TRAIL = 12;  // steps

  // Positions move between two frames; other parts stay those of the frame before.
  function mix(part, a, b, s) {
    if (part === 'uavs') return a.map(function (v, k) { return v * (1 - s) + b[k] * s; });
    return s > 1 - 1e-9 ? b : a;
  }
  function bit(numbers, cell) { return numbers[cell >> 4] >> (cell & 15) & 1; }
  // Colours that differ strongly between neighbouring numbers and are readable on both backgrounds.
  function hue(i, colours, alpha) {
    return 'hsla(' + (i * 137.5 + 205) % 360 + ', 65%, ' + (colours.dark ? 62 : 42) + '%, ' + alpha + ')';
  }
  function disc(ctx, x, y, r) {
    ctx.beginPath();
    ctx.arc(x, y, r, 0, 2 * Math.PI);
  }
  function cells(ctx, v, map, size) {
    for (var cell = 0; cell < size * size; cell++) {
      if (bit(map, cell)) ctx.fillRect(v.left(cell % size), v.top(Math.floor(cell / size)), v.scale, v.scale);
    }
  }
  function drawGrid(ctx, v, s) {
    var size = s.numbers.size, end = v.left(size), low = v.top(size);
    ctx.fillStyle = s.colours.of('ground');
    ctx.fillRect(v.left(0), v.top(0), size * v.scale, size * v.scale);
    if (s.at.covered) {
      ctx.fillStyle = s.colours.of('accent');
      ctx.globalAlpha = 0.22;
      cells(ctx, v, s.at.covered, size);
      ctx.globalAlpha = 1;
    }
    ctx.strokeStyle = s.colours.of('grid');
    ctx.lineWidth = 0.5;
    ctx.beginPath();
    for (var i = 0; i <= size; i++) {
      ctx.moveTo(v.left(i), v.top(0));
      ctx.lineTo(v.left(i), low);
      ctx.moveTo(v.left(0), v.top(i));
      ctx.lineTo(end, v.top(i));
    }
    ctx.stroke();
    ctx.fillStyle = s.colours.of('dim');
    cells(ctx, v, s.at.walls, size);
  }
  // The trail of the last steps, fading.
  function drawTrail(ctx, v, s, i) {
    var all = s.replay.parts.uavs, n = s.replay.columns.uavs, first = Math.max(0, s.frame - TRAIL);
    ctx.lineWidth = Math.max(1, v.scale * 0.16);
    ctx.lineCap = 'round';
    for (var f = first; f < s.frame; f++) {
      ctx.strokeStyle = hue(i, s.colours, 0.55 * (f + 1 - first) / (s.frame - first));
      ctx.beginPath();
      ctx.moveTo(v.x(all[f * n + 2 * i]), v.y(all[f * n + 2 * i + 1]));
      ctx.lineTo(v.x(all[(f + 1) * n + 2 * i]), v.y(all[(f + 1) * n + 2 * i + 1]));
      ctx.stroke();
    }
    ctx.lineCap = 'butt';
  }
  function drawGoal(ctx, v, s, i) {
    var x = v.x(s.at.goals[2 * i]), y = v.y(s.at.goals[2 * i + 1]), r = v.scale * 0.3;
    ctx.strokeStyle = hue(i, s.colours, 1);
    ctx.lineWidth = Math.max(1.2, v.scale * 0.12);
    ctx.beginPath();
    ctx.moveTo(x - r, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.moveTo(x - r, y + r);
    ctx.lineTo(x + r, y - r);
    ctx.stroke();
  }
  function drawUav(ctx, v, s, i) {
    var x = v.x(s.at.uavs[2 * i]), y = v.y(s.at.uavs[2 * i + 1]), what = Math.round(s.at.what[i]);
    ctx.fillStyle = hue(i, s.colours, 1);
    disc(ctx, x, y, v.scale * 0.4);
    ctx.fill();
    if (what & 3) {
      ctx.strokeStyle = s.colours.of(what & 2 ? 'push' : 'bad');
      ctx.lineWidth = Math.max(1.5, v.scale * 0.14);
      disc(ctx, x, y, v.scale * 0.52);
      ctx.stroke();
    }
    if (v.scale < 13) return;
    ctx.fillStyle = s.colours.of('panel');
    ctx.font = '600 ' + Math.round(v.scale * 0.48) + 'px system-ui, sans-serif';
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.fillText(String(i), x, y);
  }

  function draw(ctx, width, height, s) {
    var size = s.numbers.size, scale = Math.min(width, height) * 0.97 / size;
    var left = (width - size * scale) / 2, top = (height - size * scale) / 2, i;
    var v = {
      scale: scale,
      left: function (x) { return left + x * scale; },
      top: function (y) { return top + y * scale; },
      x: function (x) { return left + (x + 0.5) * scale; },
      y: function (y) { return top + (y + 0.5) * scale; }
    };
    ctx.fillStyle = s.colours.of('sky');
    ctx.fillRect(0, 0, width, height);
    drawGrid(ctx, v, s);
    for (i = 0; i < s.at.what.length; i++) drawTrail(ctx, v, s, i);
    for (i = 0; s.at.goals && i < s.at.what.length; i++) drawGoal(ctx, v, s, i);
    for (i = 0; i < s.at.what.length; i++) drawUav(ctx, v, s, i);
  }
  return { draw: draw, mix: mix, aspect: 1 };
})();
