// Curves of experiments in one chart, drawn by uPlot. A chart updates itself: new values come with the server's events, and
// the curve of an experiment is read again when it ends.
'use strict';
(function () {
  const { h, fill, t, css, model, isNumber } = brim;
  const COLOURS = 8, MOST_POINTS = 1600;

  // Experiments keep their colour while the page is open.
  const slots = new Map();
  function slotOf(id) {
    if (!slots.has(id)) slots.set(id, slots.size);
    return slots.get(id);
  }
  function colourOf(id, at) { return css('--c' + (at === undefined ? slotOf(id) : at) % COLOURS); }

  // A moving average, for noisy curves.
  function smoothed(values, weight) {
    let mean = null;
    return values.map((v) => {
      if (!isNumber(v)) return v;
      mean = mean === null ? v : weight * mean + (1 - weight) * v;
      return mean;
    });
  }

  //-------------------------------- one chart --------------------------------

  // Mean and deviation of several curves at every step where any of them has a value.
  function together(curves) {
    const steps = new Map();
    for (const points of curves) for (const p of points) if (isNumber(p[1])) steps.set(p[0], (steps.get(p[0]) || []).concat([p[1]]));
    const xs = [...steps.keys()].sort((a, b) => a - b), means = [], highs = [], lows = [];
    for (const x of xs) {
      const values = steps.get(x), n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
      const std = n > 1 ? Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / (n - 1)) : 0;
      means.push(mean);
      highs.push(mean + std);
      lows.push(mean - std);
    }
    return [xs, means, highs, lows];
  }

  // options: {height, key, legend}; list: [{id, name, colour}]; with `members` (ids) a group: mean and deviation
  class Chart {
    constructor(options) {
      this.options = Object.assign({ height: 240, legend: true }, options);
      this.key = this.options.key || '';
      this.list = [];
      this.data = new Map();
      this.log = false;
      this.smooth = false;
      this.plot = null;
      this.asked = 0;
      this.box = h('div.plot');
      this.names = h('ul.legend');
      this.empty = h('p.dim.empty', { hidden: true }, t('noCurve'));
      this.element = h('div.chart', {}, this.box, this.empty, this.options.legend ? this.names : null);
      this.element.chart = this;
      this.watch = new ResizeObserver(() => this.resize());
      this.watch.observe(this.box);
      this.draw = brim.throttle(200, () => this.render());
      this.off = [
        brim.on('metrics', (m) => this.append(m)),
        brim.on('exp', (id) => this.changed(id)),
        brim.on('progress', (p) => this.moved(p.exp)),
        brim.on('theme', () => { this.rebuild = true; this.render(); }),
      ];
    }
    destroy() {
      this.gone = true;
      this.off.forEach((f) => f());
      this.watch.disconnect();
      if (this.plot) this.plot.destroy();
      this.plot = null;
    }
    async show(list, key) {
      const same = key === this.key && list.length === this.list.length && list.every((e, i) => e.id === this.list[i].id && String(e.members) === String(this.list[i].members));
      this.list = list;
      if (same && this.data.size) { this.draw(); return; }
      if (key !== this.key) this.data = new Map();
      this.key = key;
      await this.read(this.ids().filter((id) => !this.data.has(id)));
    }
    ids() { return this.list.flatMap((e) => e.members || [e.id]); }
    async read(ids) {
      const asked = ++this.asked, key = this.key;
      if (ids.length && key) {
        let found;
        try { found = await model.curves(ids, key); } catch (e) { brim.refused(e); return; }
        if (this.gone || key !== this.key) return;
        for (const [id, points] of found) this.data.set(id, points);
        if (asked !== this.asked && this.ids().some((id) => !this.data.has(id))) return;
      }
      this.render();
    }
    append(m) {
      const points = this.data.get(m.exp);
      if (!points || !this.ids().includes(m.exp)) return;
      for (const [key, step, raw] of brim.rowsOf(m)) {
        const value = brim.realOf(raw), last = points[points.length - 1];
        if (key !== this.key || (last && step <= last[0])) continue;
        points.push([step, value, value, value]);
      }
      if (points.length > MOST_POINTS) { this.data.delete(m.exp); this.read([m.exp]); } else this.draw();
    }
    // Progress without values: reads the curve again if it has no values yet, or if the server does not send values.
    moved(id) {
      if (!this.ids().includes(id) || (model.hasMetrics && (this.data.get(id) || []).length)) return;
      (this.stale = this.stale || new Set()).add(id);
      this.reread = this.reread || brim.throttle(2000, () => {
        const ids = [...this.stale];
        this.stale.clear();
        this.read(ids);
      });
      this.reread();
    }
    changed(id) {
      const row = model.exps.get(id);
      if (!this.ids().includes(id)) return;
      if (!row || row.state !== 'running' || !(this.data.get(id) || []).length) this.read([id]);
    }

    //------------------------------ drawing ------------------------------

    pointsOf(e) { return (e.members || [e.id]).map((id) => this.data.get(id) || []); }
    shown() { return this.list.filter((e) => this.pointsOf(e).some((points) => points.length > 0)); }
    table(list) {
      const drawn = (values) => {
        const out = values.map((v) => !isNumber(v) || (this.log && v <= 0) ? null : v);
        return this.smooth ? smoothed(out, 0.85) : out;
      };
      const parts = list.map((e) => {
        const curves = this.pointsOf(e), [xs, ...columns] = e.members ? together(curves) : [curves[0].map((p) => p[0]), curves[0].map((p) => p[1])];
        return [xs, ...columns.map(drawn)];
      });
      if (parts.length === 0) return [[], []];
      return uPlot.join(parts, parts.map((part) => part.map(() => 1)));
    }
    // Makes the lines and the bands between them.
    series(list) {
      const out = [{}], bands = [];
      this.at = [];  // the line of each experiment or group
      for (const e of list) {
        const colour = colourOf(e.id, e.colour), few = this.pointsOf(e).every((points) => points.length < 2);
        this.at.push(out.length);
        out.push({ label: e.name, stroke: colour, width: 1.5, spanGaps: true, points: { show: few, size: 6 } });
        if (!e.members) continue;
        bands.push({ series: [out.length, out.length + 1], fill: colour + '2e' });
        for (let i = 0; i < 2; i++) out.push({ stroke: 'transparent', width: 0, spanGaps: true, points: { show: false } });
      }
      return [out, bands];
    }
    build(list, data) {
      if (this.plot) this.plot.destroy();
      const dim = css('--dim'), line = css('--line'), font = '11px system-ui, sans-serif';
      const axis = { stroke: dim, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
      const values = (u, ticks) => ticks.map((v) => v === null ? '' : brim.isShare(this.key) ? Number(brim.rounded(v * 100).toPrecision(4)) + ' %' : brim.number(v));
      const [series, bands] = this.series(list);
      this.plot = new uPlot({
        width: Math.max(120, this.box.clientWidth), height: this.options.height,
        legend: { show: false },
        cursor: { points: { size: 5 }, focus: { prox: bands.length ? -1 : 24 }, drag: { x: true, y: false } },
        focus: { alpha: 0.25 },
        scales: { x: { time: false }, y: { distr: this.log ? 3 : 1 } },
        axes: [
          Object.assign({}, axis, { size: 28, values: (u, ticks) => ticks.map((v) => brim.number(v)) }),
          // wide enough for the loss of a regression, such as 1,000,000
          Object.assign({}, axis, { values, size: (u, texts) => Math.max(56, ...(texts || []).map((t) => 14 + 6.5 * t.length)) }),
        ],
        series, bands,
        hooks: { setCursor: [() => this.values()] },
      }, data, this.box);
      this.built = this.signature(list);
      this.rebuild = false;
    }
    signature(list) {
      return [this.log, this.key, ...list.map((e) => e.id + (e.members || []).length + this.pointsOf(e).every((points) => points.length < 2))].join();
    }
    render() {
      if (this.gone) return;
      const list = this.shown();
      if (this.options.ondrawn) this.options.ondrawn(list.length);
      this.empty.hidden = list.length > 0;
      this.box.hidden = list.length === 0;
      if (list.length === 0) {
        if (this.plot) this.plot.destroy();
        this.plot = null;
        fill(this.names);
        return;
      }
      const data = this.table(list);
      if (!this.plot || this.rebuild || this.built !== this.signature(list)) this.build(list, data);
      else this.plot.setData(data);
      this.legend(list);
    }
    legend(list) {
      if (!this.options.legend) return;
      this.cells = list.map((e) => h('b'));
      this.named = list;
      fill(this.names, list.map((e, i) => h('li', {
        title: e.name,
        onmouseenter: () => this.plot && this.plot.setSeries(this.at[i], { focus: true }),
        onmouseleave: () => this.plot && this.plot.setSeries(null, { focus: false }),
      }, swatch(e), e.members ? h('span', {}, e.name) : h('a', { href: '#/exp/' + e.id }, e.name), this.cells[i])));
      this.values();
    }
    // The last point of a long curve is a mean over some steps, so the result comes from the table instead.
    result(e) {
      if (e.members) return e.key === this.key ? e.mean : null;
      const row = model.exps.get(e.id);
      return row && row.metric_key === this.key && ['done', 'failed', 'cancelled'].includes(row.state) ? brim.realOf(row.metric) : null;
    }
    values() {
      if (!this.plot || !this.cells) return;
      const at = this.plot.cursor.idx, data = this.plot.data;
      this.cells.forEach((cell, i) => {
        const values = data[this.at[i]] || [];
        let from = isNumber(at) ? at : values.length - 1;
        while (from >= 0 && !isNumber(values[from])) from--;
        const result = isNumber(at) ? null : this.result(this.named[i]);
        cell.textContent = isNumber(result) ? brim.metric(this.key, result) : from < 0 ? '' : brim.metric(this.key, values[from]);
      });
    }
    resize() {
      if (this.plot && this.box.clientWidth > 0) this.plot.setSize({ width: this.box.clientWidth, height: this.options.height });
    }
  }
  // A coloured square. Its style is set by script: the page allows no style attributes.
  function swatch(e) {
    const mark = h('i.swatch');
    mark.style.background = colourOf(e.id, e.colour);
    return mark;
  }

  //-------------------------------- a panel with tools --------------------------------

  // A chart with a choice of the metric, the logarithmic scale and smoothing.
  class Panel {
    constructor(options) {
      this.chart = new Chart(Object.assign({ ondrawn: (count) => { this.note.textContent = this.noteKey && count ? t(this.noteKey, count, this.noteOf) : ''; } }, options));
      this.select = h('select', { title: t('metric'), 'aria-label': t('metric'), onchange: () => {
        this.chosen = this.select.value;
        this.update();
        if (options.onchange) options.onchange(this.chosen);
      } });
      this.note = h('p.dim.drawn');
      const flag = (name) => h('label', {}, h('input', {
        type: 'checkbox', onchange: (e) => { this.chart[name] = e.target.checked; this.chart.render(); },
      }), t(name === 'log' ? 'logScale' : 'smooth'));
      this.element = h('section.panel.charting', {}, h('div.tools', {}, this.select, h('span.grow'), flag('log'), flag('smooth')), this.note, this.chart.element);
      this.keys = [];
      this.off = brim.on('names', () => this.choices());
    }
    destroy() { this.off(); this.chart.destroy(); }
    choices() {
      const value = this.select.value;
      brim.refresh(this.select, this.keys.map((k) => h('option', { value: k }, brim.nameAmong(k, this.keys))));
      this.select.value = value;
    }
    // list: [{id, name}]; preferred: the metric of the results; note: key of a text with the number of curves
    async show(list, grid, preferred, note, of) {
      this.list = list;
      this.noteKey = note;
      this.noteOf = of;
      const from = grid + '|' + (list[0] ? (list[0].members || [list[0].id])[0] : '');
      if (this.from !== from || this.keys.length < 2) {
        this.from = from;
        let keys = [];
        try { keys = await model.keys(grid, list.flatMap((e) => e.members || [e.id])); } catch (e) { brim.refused(e); }
        if (this.from !== from) return;
        if (preferred && !keys.includes(preferred)) keys.unshift(preferred);
        this.keys = keys;
        this.choices();
      }
      const key = this.keys.includes(this.chosen) ? this.chosen : preferred || this.keys[0] || '';
      this.select.value = key;
      await this.chart.show(this.list, key);
    }
    update() { this.chart.show(this.list, this.select.value); }
  }

  Object.assign(brim, { Chart, Panel, colourOf, swatch });
})();
