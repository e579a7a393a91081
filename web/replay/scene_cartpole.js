// The cart-pole of a replay page, from the side: a track with its bounds, a cart with a pole, and the allowed angles of the
// pole. Metres, x to the right; 0 is the middle of the track and an upright pole. replay.js describes the interface.
// Part: state (x, angle in radians, to the right).
// needs parts.state numbers.far numbers.tilt numbers.pole
'use strict';
var brimScene = (function () {
  var CART = { width: 0.5, height: 0.28, wheel: 0.075 };

  // Pixels per metre, so that the track with a margin and the height of the pole fit.
  function scaleOf(width, height, numbers) {
    var wide = 2 * numbers.far + 0.8, high = numbers.pole + CART.height + 0.55;
    return Math.min(width / wide, (height - 40) / high);
  }
  function line(ctx, x0, y0, x1, y1) {
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
  }
  function text(ctx, words, x, y) {
    ctx.font = '12px system-ui, sans-serif';
    ctx.textAlign = 'center';
    ctx.textBaseline = 'top';
    ctx.fillText(words, x, y);
  }
  function drawBackground(ctx, width, height, colours) {
    var paint = ctx.createLinearGradient(0, 0, 0, height);
    paint.addColorStop(0, colours.of('sky'));
    paint.addColorStop(0.6, colours.of('ground'));
    ctx.fillStyle = paint;
    ctx.fillRect(0, 0, width, height);
  }
  // The rail with a tick for every half metre, and posts at which an episode ends.
  function drawTrack(ctx, v, s) {
    var far = s.numbers.far, c = s.colours;
    ctx.strokeStyle = c.of('grid');
    ctx.fillStyle = c.of('dim');
    ctx.lineWidth = 1;
    for (var x = -Math.floor(far * 2) / 2; x <= far; x += 0.5) {
      var whole = Math.abs(x - Math.round(x)) < 1e-6;
      line(ctx, v.x(x), v.y(0), v.x(x), v.y(0) + (whole ? 8 : 5));
      if (whole) text(ctx, (x === 0 ? '0' : x.toFixed(0)) + (x === 0 ? ' m' : ''), v.x(x), v.y(0) + 11);
    }
    ctx.strokeStyle = c.of('dim');
    ctx.lineWidth = 2;
    line(ctx, v.x(-far), v.y(0), v.x(far), v.y(0));
    ctx.strokeStyle = c.of('bad');
    [-far, far].forEach(function (x) { line(ctx, v.x(x), v.y(0) + 8, v.x(x), v.y(0.34)); });
  }
  // The trail of the end of the pole over the last second, fading.
  function drawTrail(ctx, v, s) {
    var state = s.replay.parts.state, dt = s.replay.dt, first = Math.max(0, s.frame - Math.round(1 / dt));
    ctx.strokeStyle = s.colours.of('trail');
    ctx.lineWidth = 2;
    for (var i = first; i < s.frame; i++) {
      var a = tipOf(state[2 * i], state[2 * i + 1], s.numbers);
      var b = tipOf(state[2 * i + 2], state[2 * i + 3], s.numbers);
      ctx.globalAlpha = 0.6 * (i + 1 - first) / (s.frame - first);
      line(ctx, v.x(a[0]), v.y(a[1]), v.x(b[0]), v.y(b[1]));
    }
    ctx.globalAlpha = 1;
  }
  function pivot() { return CART.wheel * 2 + CART.height * 0.72; }
  function tipOf(x, angle, numbers) {
    return [x + numbers.pole * Math.sin(angle), pivot() + numbers.pole * Math.cos(angle)];
  }
  // The angles beyond which the pole has fallen.
  function drawLimits(ctx, v, s, x) {
    ctx.strokeStyle = s.colours.of('bad');
    ctx.lineWidth = 1.5;
    ctx.setLineDash([2, 5]);
    ctx.globalAlpha = 0.8;
    [-1, 1].forEach(function (side) {
      var tip = tipOf(x, side * s.numbers.tilt, { pole: s.numbers.pole * 1.06 });
      line(ctx, v.x(x), v.y(pivot()), v.x(tip[0]), v.y(tip[1]));
    });
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }
  function css(rgb, light) {
    return 'rgb(' + rgb.map(function (n) { return Math.round(Math.min(255, n * light)); }).join(',') + ')';
  }
  function drawCart(ctx, v, colours, x) {
    var w = CART.width, top = CART.wheel * 2 + CART.height, base = colours.rgb('rear');
    var paint = ctx.createLinearGradient(0, v.y(top), 0, v.y(CART.wheel));
    paint.addColorStop(0, css(base, 1.12));
    paint.addColorStop(1, css(base, 0.8));
    ctx.fillStyle = paint;
    ctx.beginPath();
    ctx.roundRect(v.x(x - w / 2), v.y(top), w * v.scale, CART.height * v.scale, 0.04 * v.scale);
    ctx.fill();
    [-0.3, 0.3].forEach(function (side) {
      var cx = v.x(x + side * w), cy = v.y(CART.wheel), r = CART.wheel * v.scale, turn = -x / CART.wheel;
      ctx.fillStyle = css(colours.rgb('joint'), 0.75);
      ctx.beginPath();
      ctx.arc(cx, cy, r, 0, 2 * Math.PI);
      ctx.fill();
      ctx.strokeStyle = css(colours.rgb('torso'), 0.95);
      ctx.lineWidth = Math.max(1, r * 0.16);
      line(ctx, cx - r * 0.7 * Math.cos(turn), cy + r * 0.7 * Math.sin(turn),
           cx + r * 0.7 * Math.cos(turn), cy - r * 0.7 * Math.sin(turn));
    });
  }
  function drawPole(ctx, v, s, x, angle) {
    var tip = tipOf(x, angle, s.numbers);
    ctx.lineCap = 'round';
    ctx.strokeStyle = css(s.colours.rgb('front'), 0.95);
    ctx.lineWidth = Math.max(4, 0.06 * v.scale);
    line(ctx, v.x(x), v.y(pivot()), v.x(tip[0]), v.y(tip[1]));
    ctx.lineCap = 'butt';
    ctx.fillStyle = css(s.colours.rgb('torso'), 1);
    ctx.beginPath();
    ctx.arc(v.x(x), v.y(pivot()), Math.max(3, 0.035 * v.scale), 0, 2 * Math.PI);
    ctx.fill();
  }

  function draw(ctx, width, height, s) {
    var scale = scaleOf(width, height, s.numbers);
    var floor = height / 2 + (pivot() + s.numbers.pole) * scale / 2;
    var v = {
      scale: scale,
      x: function (x) { return width / 2 + x * scale; },
      y: function (y) { return floor - y * scale; }
    };
    var x = s.at.state[0], angle = s.at.state[1];
    drawBackground(ctx, width, height, s.colours);
    drawTrack(ctx, v, s);
    drawLimits(ctx, v, s, x);
    drawTrail(ctx, v, s);
    drawCart(ctx, v, s.colours, x);
    drawPole(ctx, v, s, x, angle);
  }
  return { draw: draw, aspect: 2.2 };
})();
