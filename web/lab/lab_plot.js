// Drawings of a store's page: parallel coordinates and curves, each on a canvas. Both keep the picture without its
// highlight, so that pointing at a line redraws only that line.
'use strict';
var brimPlot = (function () {
  var doc = document, css = brimPage.css;

  //-------------------------------- scales --------------------------------

  function format(value) { return brimPage.number(value, 5); }
  function ticksOf(low, high, most) {
    var raw = (high - low) / most, unit = Math.pow(10, Math.floor(Math.log10(raw))), out = [];
    var step = [1, 2, 5, 10].map(function (m) { return m * unit; }).find(function (s) { return s >= raw; });
    for (var k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
      out.push(Number((k * step).toPrecision(12)));
    }
    return out;
  }
  function logTicks(low, high) {
    var out = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    var each = Math.max(1, Math.ceil((last - first) / 5));
    for (var e = first; e <= last; e += each) {
      var v = Math.pow(10, e);
      if (v >= low * 0.999 && v <= high * 1.001) out.push(Number(v.toPrecision(12)));
    }
    return out.length > 1 ? out : [low, high];
  }
  // Values to 0..1 and back, with ticks.
  function scale(low, high, log) {
    if (!(low < high)) { var pad = Math.abs(low) * 0.05 || 0.5; low -= pad; high += pad; log = false; }
    if (log && !(low > 0)) log = false;
    var a = log ? Math.log(low) : low, b = log ? Math.log(high) : high;
    return {
      low: low, high: high, log: log,
      at: function (v) { return ((log ? Math.log(v) : v) - a) / (b - a); },
      ticks: log ? logTicks(low, high) : ticksOf(low, high, 5)
    };
  }

  //-------------------------------- colours --------------------------------

  var stops = [[43, 110, 207], [123, 94, 167], [176, 80, 138], [213, 94, 0]];
  function ramp(t) {
    var x = Math.max(0, Math.min(1, t)) * (stops.length - 1), i = Math.min(Math.floor(x), stops.length - 2), s = x - i;
    return 'rgb(' + stops[i].map(function (v, k) {
      return Math.round(v + (stops[i + 1][k] - v) * s);
    }).join(' ') + ')';
  }

  //-------------------------------- canvas --------------------------------

  function open(canvas, width, height) {
    var ratio = Math.min(window.devicePixelRatio || 1, 2), ctx = canvas.getContext('2d');
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = '12px ' + getComputedStyle(doc.body).fontFamily;
    ctx.lineJoin = 'round';
    return ctx;
  }
  function keep(canvas) {
    var copy = doc.createElement('canvas');
    copy.width = canvas.width;
    copy.height = canvas.height;
    if (canvas.width && canvas.height) copy.getContext('2d').drawImage(canvas, 0, 0);
    return copy;
  }
  function restore(canvas, copy) {
    var ctx = canvas.getContext('2d');
    ctx.save();
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, canvas.width, canvas.height);
    if (copy && copy.width && copy.height) ctx.drawImage(copy, 0, 0);
    ctx.restore();
    return ctx;
  }
  function opacity(lines) { return Math.max(0.06, Math.min(0.9, 90 / Math.max(lines, 1))); }
  // The beginning of a text that fits into the width.
  function clip(ctx, text, width) {
    if (ctx.measureText(text).width <= width) return text;
    while (text.length > 1 && ctx.measureText(text + '\u2026').width > width) text = text.slice(0, -1);
    return text + '\u2026';
  }
  function place(event, canvas) {
    var box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  //-------------------------------- parallel coordinates --------------------------------

  // dims: [{name, at: 0..1 of each experiment, -1 = none, ticks: [[0..1, text]]}]
  // hooks: brush(dim, [low, high] or null), point(experiment or -1, event), choose(experiment)
  function axes(canvas, dims, hooks) {
    var top = 30, bottom = 30, height = 340, left = 14, gap = 0, copy = null, state = null, drag = null;
    var ranges = dims.map(function () { return null; });
    function x(k) { return left + gap * k; }
    function y(t) { return t < 0 ? height - 10 : height - bottom - t * (height - top - bottom); }
    function line(ctx, exp) {
      ctx.beginPath();
      for (var k = 0; k < dims.length; k++) {
        if (k) ctx.lineTo(x(k), y(dims[k].at[exp])); else ctx.moveTo(x(k), y(dims[k].at[exp]));
      }
      ctx.stroke();
    }
    function scene(ctx, width) {
      var ink = css('--ink'), dim = css('--dim'), panel = css('--panel');
      ctx.lineWidth = 1;
      ctx.strokeStyle = css('--line');
      ctx.globalAlpha = Math.max(0.15, opacity(state.faint.length));
      state.faint.forEach(function (exp) { line(ctx, exp); });
      ctx.lineWidth = state.shown.length > 200 ? 1 : 1.4;
      ctx.globalAlpha = opacity(state.shown.length);
      state.shown.forEach(function (exp) { ctx.strokeStyle = state.colour(exp); line(ctx, exp); });
      ctx.globalAlpha = 1;
      dims.forEach(function (d, k) {
        var room = k + 1 < dims.length ? gap - 12 : width - x(k) - 6;
        ctx.strokeStyle = dim;
        ctx.lineWidth = 1;
        ctx.beginPath(); ctx.moveTo(x(k), y(1)); ctx.lineTo(x(k), y(0)); ctx.stroke();
        if (ranges[k]) {
          ctx.fillStyle = css('--accent');
          ctx.globalAlpha = 0.35;
          ctx.fillRect(x(k) - 6, y(ranges[k][1]), 12, y(ranges[k][0]) - y(ranges[k][1]));
          ctx.globalAlpha = 1;
        }
        ctx.font = '600 12px ' + getComputedStyle(doc.body).fontFamily;
        ctx.fillStyle = ink;
        ctx.textBaseline = 'alphabetic';
        if (k && k + 1 === dims.length) {  // its name may use the room of the axis before it
          var name = clip(ctx, d.name, gap);
          ctx.fillText(name, width - 4 - ctx.measureText(name).width, 14);
        } else {
          ctx.fillText(clip(ctx, d.name, room), x(k) - (k ? 0 : 8), 14);
        }
        ctx.font = '12px ' + getComputedStyle(doc.body).fontFamily;
        ctx.textBaseline = 'middle';
        ctx.lineWidth = 3;
        ctx.strokeStyle = panel;
        ctx.fillStyle = dim;
        d.ticks.forEach(function (tick) {
          var text = clip(ctx, tick[1], room);
          ctx.strokeText(text, x(k) + 6, y(tick[0]));
          ctx.fillText(text, x(k) + 6, y(tick[0]));
        });
      });
    }
    function draw(next) {
      if (next) state = next;
      if (!state) return;
      var box = canvas.parentNode.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentNode).paddingLeft);
      var width = Math.max(box, 110 * dims.length), last = 84;
      gap = dims.length > 1 ? (width - left - last) / (dims.length - 1) : 0;
      var ctx = open(canvas, width, height);
      scene(ctx, width);
      copy = keep(canvas);
      highlight(state.marked);
    }
    function highlight(exp) {
      var ctx = restore(canvas, copy);
      state.marked = exp;
      [state.chosen, exp].forEach(function (which) {
        if (which === undefined || which < 0) return;
        ctx.lineWidth = 5; ctx.strokeStyle = css('--panel'); line(ctx, which);
        ctx.lineWidth = 2.6; ctx.strokeStyle = css('--ink'); line(ctx, which);
      });
    }
    function nearest(p) {
      var best = -1, least = 9, k = Math.max(0, Math.min(dims.length - 2, Math.floor((p.x - left) / (gap || 1))));
      var s = gap ? (p.x - x(k)) / gap : 0;
      if (dims.length < 2 || s < -0.05 || s > 1.05) return -1;
      state.shown.forEach(function (exp) {
        var away = Math.abs(y(dims[k].at[exp]) * (1 - s) + y(dims[k + 1].at[exp]) * s - p.y);
        if (away < least) { least = away; best = exp; }
      });
      return best;
    }
    function axisAt(p) {
      var k = gap ? Math.round((p.x - left) / gap) : 0;
      return k >= 0 && k < dims.length && Math.abs(p.x - x(k)) < 14 && p.y > top - 12 ? k : -1;
    }
    function value(p) { return Math.max(0, Math.min(1, (height - bottom - p.y) / (height - top - bottom))); }
    canvas.addEventListener('pointerdown', function (event) {
      var p = place(event, canvas), k = axisAt(p);
      if (!state || k < 0 || event.pointerType === 'touch') return;
      drag = { k: k, from: value(p), y: p.y, moved: false };
      // Fails if the pointer is gone. Without the capture, dragging ends at the edge of the canvas.
      try { canvas.setPointerCapture(event.pointerId); } catch (error) { drag.moved = false; }
      event.preventDefault();
    });
    canvas.addEventListener('pointermove', function (event) {
      if (!state) return;
      var p = place(event, canvas);
      if (!drag) {
        var exp = nearest(p);
        canvas.style.cursor = axisAt(p) >= 0 ? 'row-resize' : exp >= 0 ? 'pointer' : '';
        highlight(exp);
        hooks.point(exp, event);
        return;
      }
      drag.moved = drag.moved || Math.abs(p.y - drag.y) > 3;
      if (!drag.moved) return;
      ranges[drag.k] = [Math.min(drag.from, value(p)), Math.max(drag.from, value(p))];
      hooks.brush(drag.k, ranges[drag.k]);
    });
    canvas.addEventListener('pointerup', function (event) {
      var p = place(event, canvas);
      if (drag && !drag.moved) { ranges[drag.k] = null; hooks.brush(drag.k, null); }
      else if (!drag && state && nearest(p) >= 0) hooks.choose(nearest(p));
      drag = null;
    });
    canvas.addEventListener('pointercancel', function () { drag = null; });
    canvas.addEventListener('pointerleave', function () {
      if (state && !drag) { highlight(-1); hooks.point(-1); }
    });
    return {
      draw: draw,
      highlight: function (exp) { if (state) highlight(exp); },
      clear: function () { ranges = dims.map(function () { return null; }); }
    };
  }

  //-------------------------------- curves --------------------------------

  // draw({lines: [{exp, steps, values, colour}], bands: [{steps, low, high, colour}], log, chosen, empty})
  // hooks: point(line or null, index of its point, event), choose(line)
  function curves(canvas, hooks) {
    var state = null, copy = null, sx, sy, box = {};
    function px(step) { return box.left + sx.at(step) * (box.width - box.left - box.right); }
    function py(v) { return box.height - box.bottom - sy.at(v) * (box.height - box.top - box.bottom); }
    function limits() {
      var low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
      function see(v) {
        if (v === null || (state.log && !(v > 0))) return;
        if (v < low) low = v;
        if (v > high) high = v;
      }
      state.lines.forEach(function (l) {
        first = Math.min(first, l.steps[0]);
        last = Math.max(last, l.steps[l.steps.length - 1]);
        l.values.forEach(see);
      });
      state.bands.forEach(function (b) { b.low.forEach(see); b.high.forEach(see); });
      if (first > last || low > high) return false;
      sx = scale(first, last, false);
      if (state.log) sy = scale(low, high, true);
      else { var pad = (high - low) * 0.04; sy = scale(low - pad, high + pad, false); }
      return true;
    }
    function path(ctx, l) {
      var down = false;
      ctx.beginPath();
      for (var i = 0; i < l.steps.length; i++) {
        var v = l.values[i];
        if (v === null || (sy.log && !(v > 0))) { down = false; continue; }
        if (down) ctx.lineTo(px(l.steps[i]), py(v)); else ctx.moveTo(px(l.steps[i]), py(v));
        down = true;
      }
      ctx.stroke();
      if (l.steps.length === 1 && down) {
        ctx.fillStyle = ctx.strokeStyle;
        ctx.beginPath(); ctx.arc(px(l.steps[0]), py(l.values[0]), 3, 0, 7); ctx.fill();
      }
    }
    function grid(ctx) {
      var dim = css('--dim');
      ctx.lineWidth = 1;
      ctx.strokeStyle = css('--line');
      ctx.fillStyle = dim;
      ctx.textBaseline = 'middle';
      ctx.textAlign = 'right';
      sy.ticks.forEach(function (v) {
        ctx.beginPath(); ctx.moveTo(box.left, py(v)); ctx.lineTo(box.width - box.right, py(v)); ctx.stroke();
        ctx.fillText((state.write || format)(v), box.left - 6, py(v));
      });
      ctx.textAlign = 'center';
      ctx.textBaseline = 'top';
      sx.ticks.forEach(function (v) {
        if (v < sx.low || v > sx.high) return;
        ctx.fillText(format(v), Math.min(px(v), box.width - 20), box.height - box.bottom + 6);
      });
      ctx.textAlign = 'left';
    }
    function draw(next) {
      if (next) state = next;
      if (!state) return;
      var style = getComputedStyle(canvas.parentNode);
      var width = canvas.parentNode.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      box = { width: width, height: width < 500 ? 260 : 380, left: 56, right: 10, top: 10, bottom: 24 };
      var ctx = open(canvas, box.width, box.height);
      if (!limits()) {
        ctx.fillStyle = css('--dim');
        ctx.fillText(state.empty, 8, 24);
        copy = keep(canvas);
        sx = null;
        return;
      }
      sy.ticks.forEach(function (v) {
        box.left = Math.max(box.left, Math.ceil(ctx.measureText((state.write || format)(v)).width) + 10);
      });
      grid(ctx);
      state.bands.forEach(function (b) {
        ctx.beginPath();
        b.steps.forEach(function (s, i) {
          var v = state.log && !(b.high[i] > 0) ? sy.low : b.high[i];
          if (i) ctx.lineTo(px(s), py(v)); else ctx.moveTo(px(s), py(v));
        });
        for (var i = b.steps.length - 1; i >= 0; i--) {
          ctx.lineTo(px(b.steps[i]), py(state.log && !(b.low[i] > sy.low) ? sy.low : b.low[i]));
        }
        ctx.fillStyle = b.colour;
        ctx.globalAlpha = 0.13;
        ctx.fill();
      });
      ctx.lineWidth = state.lines.length > 100 ? 1 : 1.7;
      ctx.globalAlpha = opacity(state.lines.length * 0.5);
      state.lines.forEach(function (l) { ctx.strokeStyle = l.colour; path(ctx, l); });
      ctx.globalAlpha = 1;
      copy = keep(canvas);
      highlight(null);
    }
    function highlight(line, index) {
      var ctx = restore(canvas, copy);
      if (!sx) return;
      state.lines.forEach(function (l) {
        if (l !== line && (state.chosen === undefined || state.chosen < 0 || l.exp !== state.chosen)) return;
        ctx.lineWidth = 5; ctx.strokeStyle = css('--panel'); path(ctx, l);
        ctx.lineWidth = 2.8; ctx.strokeStyle = l.colour; path(ctx, l);
      });
      if (!line || index === undefined || line.values[index] === null) return;
      ctx.fillStyle = css('--ink');
      ctx.beginPath(); ctx.arc(px(line.steps[index]), py(line.values[index]), 4, 0, 7); ctx.fill();
    }
    function nearest(p) {
      var found = null, at = -1, least = 24 * 24;
      state.lines.forEach(function (l) {
        for (var i = 0; i < l.steps.length; i++) {
          var v = l.values[i];
          if (v === null || (sy.log && !(v > 0))) continue;
          var dx = px(l.steps[i]) - p.x;
          if (dx > 24 || dx < -24) continue;
          var dy = py(v) - p.y;
          if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; found = l; at = i; }
        }
      });
      return { line: found, index: at };
    }
    canvas.addEventListener('pointermove', function (event) {
      if (!state || !sx) return;
      var near = nearest(place(event, canvas));
      highlight(near.line, near.index);
      hooks.point(near.line, near.index, event);
    });
    canvas.addEventListener('pointerleave', function () {
      if (state) { highlight(null); hooks.point(null); }
    });
    canvas.addEventListener('click', function (event) {
      var near = state && sx ? nearest(place(event, canvas)) : {};
      if (near.line) hooks.choose(near.line);
    });
    return { draw: draw };
  }

  return { axes: axes, curves: curves, scale: scale, format: format, ramp: ramp };
})();
