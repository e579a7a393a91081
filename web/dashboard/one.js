// One experiment, several side by side, and the actions on experiments.
'use strict';
(function () {
  const { h, fill, t, model } = brim;
  const LOG_FIRST = 32768, LOG_MOST = 400000, MOST = 12, CHARTS = 6;

  //-------------------------------- actions --------------------------------

  function live(row) { return row.state === 'running' || row.state === 'leased'; }
  // Buttons for the actions that the states and the role allow.
  function actionsFor(rows, after) {
    if (!model.may('submit') || rows.length === 0) return [];
    const out = [], doing = (promise) => promise.then(after || (() => {}), brim.refused);
    const button = (key, fits, what, kind) => {
      const ids = rows.filter(fits).map((row) => row.id);
      if (ids.length) out.push(h('button', { class: kind || '', 'data-action': key, 'data-for': brim.digest(ids), onclick: () => what(ids) }, t(key)));
    };
    button('run', (row) => row.state === 'paused' || (live(row) && row.want === 'pause'), (ids) => doing(model.want(ids, 'run')));
    button('pause', (row) => row.state === 'queued' || (live(row) && row.want === 'run'), (ids) => doing(model.want(ids, 'pause')));
    button('retry', (row) => row.state === 'failed' || row.state === 'cancelled', (ids) => doing(model.retry(ids)));
    button('priority', (row) => row.state === 'queued' || row.state === 'paused', (ids) => askPriority(ids, after));
    button('cancel', (row) => row.state === 'queued' || row.state === 'paused' || (live(row) && row.want !== 'cancel'), async (ids) => {
      const question = ids.length === 1 ? t('askCancelOne') : t('askCancel', brim.count(ids.length));
      if (await brim.ask(question, t('cancel'))) doing(model.want(ids, 'cancel'));
    }, 'danger');
    return out;
  }
  // For a narrow screen: one button that opens the actions.
  function actionMenu(row) {
    if (!actionsFor([row]).length) return null;
    return h('button.menu', { 'aria-haspopup': 'dialog', 'aria-label': t('actions') + ': ' + brim.nameOf(row), 'data-for': brim.digest([row.id]), onclick: () => {
      const now = model.exps.get(row.id) || row;
      const box = brim.dialog(h('h2', {}, brim.labelOf(now)), h('div.choices', { onclick: (e) => { if (e.target.closest('button')) box.close(); } },
        actionsFor([now]), h('button', {}, t('close'))));
    } }, '\u22ef');
  }
  function askPriority(ids, after) {
    const row = model.exps.get(ids[0]);
    const input = h('input', { type: 'number', step: 1, value: String((row && row.priority) || 0), 'aria-label': t('priority') });
    const box = brim.dialog(h('form', {
      onsubmit: (e) => {
        e.preventDefault();
        box.close();
        model.priority(ids, Math.round(Number(input.value))).then(after || (() => {}), brim.refused);
      },
    }, h('label.stack', {}, t('priority'), input), h('div.buttons', {}, h('button', { type: 'button', onclick: () => box.close() }, t('close')), h('button.main', {}, t('set')))));
  }

  //-------------------------------- config --------------------------------

  // Parses "key: value" lines into a map.
  function configOf(text) {
    const out = new Map();
    for (const line of (text || '').split('\n')) {
      if (!line || line.startsWith('#')) continue;
      const at = line.indexOf(': ');
      if (at > 0) out.set(line.slice(0, at), line.slice(at + 2).replace(/^"(.*)"$/, '$1').replace(/^'(.*)'$/, '$1'));
    }
    return out;
  }
  function facts(...pairs) {
    return h('dl.facts', {}, pairs.filter((p) => p && p[1] !== '' && p[1] !== null && p[1] !== undefined).map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v))));
  }

  //-------------------------------- findings --------------------------------

  function findingsOf(text) {
    let list = text;
    if (typeof text === 'string') try { list = JSON.parse(text || '[]'); } catch (e) { return [h('p', {}, text)]; }
    if (list && !Array.isArray(list)) list = list.findings || [];
    // as in records (record.h): code, text, remedy, cost_ms, change: {key, value}, note
    // ko: {text, remedy}
    const told = (f, key) => (brim.language() === 'ko' && f.ko && f.ko[key]) || f[key] || '';
    return (list || []).map((f) => typeof f === 'string' ? h('li', {}, f) : h('li', { class: f.note ? 'note' : '' },
      h('b', {}, told(f, 'text') || f.code || ''), f.remedy ? h('p', {}, told(f, 'remedy')) : null,
      h('p.dim', {}, f.cost_ms > 0 ? t('costs', brim.number(f.cost_ms)) + ' ' : null, f.change ? h('code', {}, f.change.key + ': ' + f.change.value) : null)));
  }

  //-------------------------------- the log --------------------------------

  // Reads the rest of the log when the server reports a change of the experiment.
  class Log {
    constructor(exp, last, attempts) {
      this.exp = exp;
      this.text = h('pre.log', { tabindex: 0, role: 'region', 'aria-label': t('log') });
      this.which = h('select.which', { 'aria-label': t('tries'), onchange: () => this.begin(true) });
      this.stream = h('select', { 'aria-label': t('stream'), onchange: () => this.begin() }, h('option', {}, 'stdout'), h('option', {}, 'stderr'));
      this.stream.value = 'stderr';
      this.follow = h('input', { type: 'checkbox', checked: true });
      this.element = h('section.panel', {}, h('div.tools', {}, h('h2', {}, t('log')), this.which, this.stream, h('span.grow'), h('label', {}, this.follow, t('follow'))), this.text);
      this.last = last;
      this.more = brim.throttle(1000, () => { if (!this.gone) this.read(); });
      const mine = (e) => { if (e.exp === exp || e === exp) this.more(); };
      this.off = [brim.on('progress', mine), brim.on('metrics', mine), brim.on('exp', mine)];
      this.choices(attempts);
      this.begin(true);
    }
    destroy() { this.off.forEach((f) => f()); this.gone = true; }
    // '' follows the last attempt, even when a new one begins.
    choices(attempts) {
      const last = attempts.length ? attempts[attempts.length - 1].n : 0, value = this.which.value;
      brim.refresh(this.which, h('option', { value: '' }, t('attemptLast', last)), attempts.slice(0, -1).reverse().map((a) => h('option', { value: String(a.n) }, t('attemptN', a.n))));
      this.which.value = value;
      this.which.hidden = attempts.length < 2;
    }
    show(n) {
      const there = [...this.which.options].some((o) => o.value === String(n));
      this.which.value = there ? String(n) : '';
      this.begin(true);
      this.element.scrollIntoView({ block: 'nearest' });
      this.text.focus({ preventScroll: true });
    }
    async begin(either) {
      const turn = this.turn = (this.turn || 0) + 1;
      this.at = null;
      this.attempt = null;
      this.reading = false;
      this.text.textContent = '';
      if (either) this.stream.value = 'stderr';
      await this.read();
      if (turn !== this.turn) return;
      if (either && !this.text.textContent && !this.missing) { this.stream.value = 'stdout'; this.at = null; await this.read(); }
      if (turn === this.turn && !this.text.textContent) this.text.textContent = (!this.which.value && this.last) || t('noLog');
    }
    async read() {
      if (this.reading || this.missing) return;
      const turn = this.turn;
      this.reading = true;
      try {
        const reply = await brim.optional(brim.get('/v1/exps/' + this.exp + '/log' + brim.query({ attempt: this.which.value, stream: this.stream.value, from: this.at === null ? -LOG_FIRST : this.at })));
        if (this.gone || turn !== this.turn) return;
        if (!reply) { this.missing = true; return; }
        if (this.attempt !== null && reply.attempt !== this.attempt) { this.at = null; this.attempt = null; this.text.textContent = ''; this.reading = false; await this.read(); return; }
        this.attempt = reply.attempt;
        if (reply.text) this.add(reply.text);
        this.at = reply.from + new TextEncoder().encode(reply.text || '').length;
        if (reply.next !== undefined) this.at = reply.next;
        if (this.at < reply.size && reply.text) this.more();
      } catch (e) {
        if (e.status !== 409 && e.status !== 400) brim.refused(e);
      } finally { if (turn === this.turn) this.reading = false; }
    }
    add(text) {
      if (this.text.textContent === t('noLog')) this.text.textContent = '';
      this.text.append(text);
      if (this.text.textContent.length > LOG_MOST) this.text.textContent = this.text.textContent.slice(-LOG_MOST / 2);
      if (this.follow.checked) this.text.scrollTop = this.text.scrollHeight;
    }
  }

  //-------------------------------- one experiment --------------------------------

  class ExpView {
    constructor(route) {
      this.id = route.id;
      this.element = h('div.view.one', {}, h('p.dim', {}, t('loading')));
      this.off = [];
      this.read().then(() => this.open());
    }
    destroy() {
      this.gone = true;
      this.off.forEach((f) => f());
      if (this.panel) this.panel.destroy();
      if (this.log) this.log.destroy();
    }
    async read() {
      try {
        const path = '/v1/exps/' + encodeURIComponent(this.id);
        const [one, attempts, files] = await Promise.all([brim.get(path), brim.get(path + '/attempts'), brim.optional(brim.get(path + '/files'))]);
        this.row = model.tidy(one.exp);
        this.row.step = this.row.step === undefined ? -1 : this.row.step;
        this.attempts = attempts.attempts || [];
        this.files = (files && files.files) || [];
        this.error = null;
      } catch (e) { this.error = e; }
    }
    open() {
      if (this.gone) return;
      if (this.error) {
        const known = /^[0-9a-f]{1,32}$/.test(this.id);
        fill(this.element, h('p.none', {}, !known ? t('unreadable') : this.error.status === 404 ? t('gone', this.id) : t('awayNow')));
        if (known && this.error.status !== 404) brim.refused(this.error);
        return;
      }
      this.id = this.row.id;
      this.head = h('div.onehead');
      this.left = h('div.column');
      this.panel = new brim.Panel({ height: 280, legend: false });
      this.log = new Log(this.id, this.row.last_lines, this.attempts);
      this.element.className = 'view one';
      fill(this.element, this.head, h('div.columns', {}, this.left, h('div.column', {}, this.panel.element, this.log.element)));
      this.draw();
      this.panel.show([{ id: this.id, name: brim.nameOf(this.row), colour: 0 }], this.row.grid, this.row.metric_key);
      const soon = brim.throttle(500, () => this.read().then(() => { if (!this.error) this.draw(); }));
      this.off.push(brim.on('exp', (id) => { if (id === this.id) soon(); }));
      for (const news of ['bests', 'names']) this.off.push(brim.on(news, () => this.drawHead()));
      // Events update the facts. Checkpoint and files are not in events: they are read again, but rarely.
      const drawSoon = brim.throttle(300, () => this.draw()), readSoon = brim.throttle(5000, soon);
      this.off.push(brim.on('metrics', (m) => { const live = m.exp === this.id && model.exps.get(m.exp); if (live) { this.row.metric = live.metric; this.row.metric_key = live.metric_key; drawSoon(); } }));
      this.off.push(brim.on('progress', (p) => {
        if (p.exp !== this.id) return;
        for (const key of ['step', 'steps', 'epoch', 'epochs']) if (p[key] !== undefined) this.row[key] = p[key];
        drawSoon();
        readSoon();
      }));
      this.off.push(brim.on('tick', () => { if (live(this.row)) this.draw(); }));
    }
    drawHead() {
      const row = this.row;
      brim.refresh(this.head, h('a.back', { href: '#/exps', title: t('back'), onclick: (e) => { e.preventDefault(); brim.back(); } }, '\u2190'),
        h('h1', {}, brim.labelOf(row)), brim.stateMark(row),
        row.state === 'running' ? brim.bar(brim.share(row)) : null,
        row.metric !== undefined ? h('span.big', {}, h('small.dim', {}, brim.nameOfKey(row.metric_key) + ' '), brim.metric(row.metric_key, row.metric)) : null,
        model.best(row) ? h('span.big', {}, h('small.dim', {}, t('best') + ' '), brim.bestOf(row)) : null,
        h('span.grow'), h('div.buttons', {}, actionsFor([row])));
    }
    draw() {
      if (this.gone) return;
      const row = this.row, config = configOf(row.config);
      this.drawHead();
      this.log.choices(this.attempts);
      const bad = row.state === 'failed' && (row.reason || row.failure);
      brim.refresh(this.left,
        bad ? h('section.panel.problem', {}, h('b', {}, brim.failureOf(row.failure) || t('failed')), h('p', {}, row.reason || '')) : null,
        h('section.panel', {}, facts(
          row.waits ? [t('waits'), brim.waitText(row.waits)] : null,
          [t('grid'), h('a', { href: '#/exps?grid=' + row.grid }, model.gridName(row.grid))],
          [t('worker'), row.state === 'queued' ? '' : row.worker], [t('step'), row.step >= 0 ? brim.count(row.step) + (row.steps > 0 ? ' / ' + brim.count(row.steps) : '') : ''],
          [t('epoch'), row.epochs > 0 ? Math.max(0, row.epoch || 0) + ' / ' + row.epochs : ''],
          [t('time'), brim.isNumber(brim.took(row)) ? brim.span(brim.took(row)) : ''],
          [t('created'), brim.clock(row.created)], [t('started'), row.started ? brim.clock(row.started) : ''], [t('ended'), row.ended ? brim.clock(row.ended) : ''],
          [t('checkpoint'), row.ckpt_step > 0 ? brim.count(row.ckpt_step) : ''], [t('priority'), row.priority || ''], [t('tags'), row.tags],
          [t('id'), h('code', {}, row.id)])),
        this.drawFindings(), this.drawAttempts(),
        h('section.panel', {}, h('h2', {}, t('config')), h('table.config', {}, [...config].map(([k, v]) => h('tr', {}, h('th', {}, k), h('td', {}, v))))),
        this.files.length ? h('section.panel', {}, h('h2', {}, t('files')), h('table.plain', {}, this.files.map((f) => h('tr', {},
          h('td', {}, h('a', { href: '/v1/exps/' + row.id + '/files/' + encodeURIComponent(f.name) + (f.attempt ? '?attempt=' + f.attempt : ''), download: '' }, f.name)), h('td.num', {}, brim.bytes(f.size)))))) : null);
    }
    drawFindings() {
      if (!this.row.findings) return null;
      const list = findingsOf(this.row.findings);
      return h('section.panel', {}, h('h2', {}, t('findings')), list.length ? h('ul.findings', {}, list) : h('p.dim', {}, t('noFindings')));
    }
    drawAttempts() {
      if (this.attempts.length === 0) return null;
      return h('section.panel', {}, h('h2', {}, t('attempts')), h('div.scroll-x', {}, h('table.plain.attempts', {},
        h('thead', {}, h('tr', {}, ['#', t('outcome'), t('worker'), t('gpus'), t('from'), t('time'), t('message')].map((x) => h('th', {}, x)))),
        h('tbody', {}, this.attempts.map((a) => {
          // on a narrow screen each cell has its title
          const cell = (title, value, kind) => h('td' + (kind || ''), { 'data-title': title, class: value === '' ? 'none' : '' }, value);
          return h('tr', {}, cell('#', [a.n, ' ', h('button', { 'data-attempt': a.n, 'aria-label': t('log') + ': ' + t('attemptN', a.n), onclick: () => this.log.show(a.n) }, t('log'))], '.number'),
            cell(t('outcome'), t('o_' + (a.outcome || 'open')) + (brim.failureOf(a.failure) ? ': ' + brim.failureOf(a.failure) : '')),
            cell(t('worker'), a.worker), cell(t('gpus'), a.devices || ''), cell(t('from'), a.from_step > 0 ? brim.count(a.from_step) : ''),
            cell(t('time'), brim.span((a.ended || brim.now()) - (a.started || a.claimed))), cell(t('message'), a.message || '', '.wrap'));
        })))));
    }
    key(name) {
      if (name === 'Escape' || name === 'Backspace') { brim.back(); return true; }
      return false;
    }
  }

  //-------------------------------- several --------------------------------

  class CompareView {
    constructor(route) {
      this.ids = (route.query.ids || '').split(',').filter(Boolean).slice(0, MOST);
      this.of = Number(route.query.of) || 0;
      this.everything = route.query.all === '1';
      this.element = h('div.view.compare', {}, h('p.dim', {}, t('loading')));
      this.charts = [];
      this.off = [];
      this.open();
    }
    destroy() { this.gone = true; this.off.forEach((f) => f()); this.charts.forEach((c) => c.destroy()); }
    async read() {
      const found = await Promise.all(this.ids.map((id) => brim.optional(brim.get('/v1/exps/' + encodeURIComponent(id)))));
      this.rows = found.filter(Boolean).map((r) => model.tidy(r.exp));
      for (const row of this.rows) row.step = row.step === undefined ? -1 : row.step;
    }
    async open() {
      if (this.ids.length < 2) { fill(this.element, h('p.none', {}, t('chooseSome'))); return; }
      try { await this.read(); } catch (e) { brim.refused(e); return; }
      if (this.gone) return;
      this.tables = h('section.panel');
      this.grid = h('div.chartgrid');
      fill(this.element, h('div.onehead', {}, h('a.back', { href: '#/exps', title: t('back'), onclick: (e) => { e.preventDefault(); brim.back(); } }, '\u2190'),
        h('h1', {}, t('compare')), h('span.dim.of', {}, this.of > this.rows.length ? t('comparedOf', brim.count(this.rows.length), brim.count(this.of)) : brim.count(this.rows.length)), h('span.grow'), h('div.buttons')), this.tables, this.grid);
      this.draw();
      const soon = brim.throttle(700, () => this.read().then(() => { if (!this.gone) this.draw(); }, brim.refused));
      this.off.push(brim.on('exp', (id) => { if (this.rows.some((r) => r.id === id)) soon(); }));
      this.off.push(brim.on('progress', (p) => {
        const row = this.rows.find((r) => r.id === p.exp);
        if (row) { Object.assign(row, p); this.draw(); }
      }));
      for (const news of ['bests', 'names']) this.off.push(brim.on(news, () => { this.draw(); this.name(); }));
      await this.drawCharts();
    }
    draw() {
      const rows = this.rows, configs = rows.map((r) => configOf(r.config));
      const names = [...new Set(configs.flatMap((c) => [...c.keys()]))].filter((k) => k !== 'name');
      const differs = names.filter((k) => new Set(configs.map((c) => c.get(k))).size > 1);
      const key = rows[0].metric_key, leading = (values) => {
        const known = values.filter(brim.isNumber);
        return known.length ? (brim.isLower(key) ? Math.min : Math.max)(...known) : NaN;
      };
      const last = leading(rows.map((r) => r.metric)), best = leading(rows.map((r) => (model.best(r) || {}).value));
      const line = (title, cell, kind) => h('tr', { class: kind || '' }, h('th', {}, title), rows.map((r, i) => h('td', {}, cell(r, i))));
      const changed = (k) => h('tr', { class: differs.includes(k) ? 'differs' : 'dim' }, h('th', {}, k), configs.map((c) => h('td', {}, c.has(k) ? c.get(k) : brim.dash)));
      brim.refresh(this.element.querySelector('.buttons'), actionsFor(rows.map((r) => model.exps.get(r.id) || r)));
      fill(this.tables, h('div.scroll-x', {}, h('table.compare', {},
        h('thead', {}, h('tr', {}, h('th'), rows.map((r, i) => h('th', {}, brim.swatch({ id: r.id, colour: i }), h('a', { href: '#/exp/' + r.id, title: r.id }, brim.nameOf(r)))))),
        h('tbody', {}, line(t('state'), brim.stateMark), line((brim.nameOfKey(key) || t('result')) + ', ' + t('last'), (r) => h(r.metric === last ? 'b.best' : 'span', {}, brim.metric(r.metric_key, r.metric)), 'result'),
          line((brim.nameOfKey(key) || t('result')) + ', ' + t('bestOf'), (r) => h((model.best(r) || {}).value === best ? 'b.best' : 'span', {}, brim.bestOf(r) || brim.dash), 'result'),
          line(t('progress'), (r) => r.state === 'running' ? brim.bar(brim.share(r)) : r.epochs > 0 && r.epoch >= 0 ? r.epoch + ' / ' + r.epochs : brim.dash),
          line(t('time'), (r) => brim.span(brim.took(r))), rows.some((r) => r.worker) ? line(t('worker'), (r) => r.worker || '') : null,
          h('tr.section', {}, h('th', { colSpan: rows.length + 1 }, t(this.everything ? 'config' : 'diff'),
            h('button', { onclick: () => { this.everything = !this.everything; brim.replace('/compare', { ids: this.ids.join(','), of: this.of || '', all: this.everything ? '1' : '' }); this.draw(); } }, t(this.everything ? 'onlyDiff' : 'allKeys')))),
          this.everything ? names.map(changed) : differs.length ? differs.map(changed) : h('tr', {}, h('td.dim', { colSpan: rows.length + 1 }, t('same')))))));
    }
    async drawCharts() {
      const first = this.rows[0];
      let keys = [];
      try { keys = await model.keys(first.grid, this.rows.map((r) => r.id)); } catch (e) { brim.refused(e); }
      if (this.gone) return;
      if (first.metric_key) keys = [first.metric_key].concat(keys.filter((k) => k !== first.metric_key));
      const list = this.rows.map((r, i) => ({ id: r.id, name: brim.nameOf(r), colour: i }));
      for (const key of keys.slice(0, CHARTS)) {
        const chart = new brim.Chart({ height: 200, legend: false });
        this.charts.push(chart);
        this.grid.append(h('section.panel', {}, h('h2', { 'data-metric': key }), chart.element));
        chart.show(list, key);
      }
      this.name();
    }
    name() {
      const titles = [...this.grid.querySelectorAll('[data-metric]')], keys = titles.map((e) => e.dataset.metric);
      for (const title of titles) title.textContent = brim.nameAmong(title.dataset.metric, keys);
    }
    key(name) {
      if (name === 'Escape' || name === 'Backspace') { brim.back(); return true; }
      return false;
    }
  }

  Object.assign(brim, { ExpView, CompareView, actionsFor, actionMenu, configOf });
})();
