// The queue, the workers, submitting, signing in, the keys.
'use strict';
(function () {
  const { h, svg, fill, t, model } = brim;
  const QUEUE = 300, LEFT_MS = 3600000, SILENT_MS = 45000;  // as the server counts: BRIM_WORKER_GONE_MS

  //-------------------------------- the queue --------------------------------

  class QueueView {
    constructor() {
      this.table = new brim.Table({ onopen: (row) => brim.go('/exp/' + row.id) });
      this.table.setColumns([
        { key: 'place', title: t('place'), kind: 'count', cell: (row, i) => row.state === 'queued' ? i + 1 : '' },
        { key: 'label', title: t('experiment'), kind: 'label', cell: brim.labelOf },
        { key: 'waits', title: t('waits'), kind: 'waits', cell: (row) => row.state === 'paused' ? t('w_paused') : brim.waitText(row.waits) },
        { key: 'priority', title: t('priority'), kind: 'priority', cell: (row) => row.priority || 0 },
        { key: 'tries', title: t('attempts'), kind: 'tries', cell: (row) => row.attempt || '' },
        { key: 'needs', title: t('needs'), kind: 'time', cell: (row) => (row.gpus > 1 ? row.gpus + ' GPU ' : '') + (row.need_bytes ? brim.bytes(row.need_bytes) : '') },
        { key: 'grid', title: t('grid'), kind: 'grid', cell: (row) => model.gridName(row.grid) },
        { key: 'actions', title: '', kind: 'acts', cell: (row) => brim.narrow.matches ? brim.actionMenu(row) : h('div.buttons', {}, brim.actionsFor([row])) },
      ]);
      this.note = h('p.dim.none', { hidden: true }, t('emptyQueue'));
      this.rest = h('p.dim');
      this.element = h('div.view.queue', {}, this.table.element, this.note, this.rest);
      this.off = [brim.on('exps', brim.throttle(1500, () => this.read()))];
      this.read();
    }
    destroy() { this.gone = true; this.off.forEach((f) => f()); this.table.destroy(); }
    async read() {
      if (this.gone) return;
      let queued, paused;
      try {
        [queued, paused] = await Promise.all([brim.get('/v1/exps?states=queued&order=queue&limit=' + QUEUE), brim.get('/v1/exps?states=paused&limit=' + QUEUE)]);
      } catch (e) { brim.refused(e); return; }
      if (this.gone) return;
      const rows = (queued.exps || []).concat(paused.exps || []), counts = model.counts();
      this.table.setRows(rows);
      this.note.hidden = rows.length > 0;
      this.rest.textContent = counts.queued > QUEUE ? t('more', brim.count(counts.queued - QUEUE)) : '';
    }
    key(name) {
      if (name === 'j' || name === 'ArrowDown') this.table.move(1);
      else if (name === 'k' || name === 'ArrowUp') this.table.move(-1);
      else if (name === 'Enter' && this.table.current()) brim.go('/exp/' + this.table.current().id);
      else return false;
      return true;
    }
  }

  //-------------------------------- workers --------------------------------

  function sparkline(values) {
    const w = 120, hgt = 22, step = w / 59;
    const points = values.map((v, i) => ((60 - values.length + i) * step).toFixed(1) + ',' + (hgt - 1 - (hgt - 2) * Math.min(100, v) / 100).toFixed(1)).join(' ');
    return svg('svg', { class: 'spark', viewBox: '0 0 ' + w + ' ' + hgt, width: w, height: hgt, 'aria-hidden': 'true' }, svg('polyline', { points }));
  }
  function meter(label, share, text, scarce) {
    return h('div.meter', {}, h('span.dim', {}, label), brim.isNumber(share) ? brim.bar(share, scarce && share > 0.95 ? 'full' : '') : h('span'), h('span.num', {}, text));
  }
  class WorkersView {
    constructor() {
      this.grid = h('div.cards');
      this.note = h('p.none.dim', { hidden: true }, t('noWorkers'), h('code', {}, 'brim worker --url ' + location.origin));
      this.leftTitle = h('summary');
      this.leftList = h('ul');
      this.left = h('details.left', { hidden: true }, this.leftTitle, this.leftList);
      this.element = h('div.view.workers', {}, this.grid, this.left, this.note);
      this.off = [brim.on('workers', brim.throttle(300, () => this.draw())), brim.on('exps', brim.throttle(1000, () => this.draw())), brim.on('tick', () => this.draw())];
      this.draw();
    }
    destroy() { this.gone = true; this.off.forEach((f) => f()); }
    draw() {
      if (this.gone) return;
      const byWorker = new Map();
      for (const row of model.exps.values()) {
        if (row.worker && (row.state === 'running' || row.state === 'leased')) byWorker.set(row.worker, (byWorker.get(row.worker) || []).concat([row]));
      }
      const workers = [...model.workers.values()].sort((a, b) => this.isSilent(a) - this.isSilent(b) || (a.id < b.id ? -1 : 1));
      const hasLeft = (w) => brim.now() - w.last_seen > LEFT_MS && !byWorker.has(w.id);
      brim.refresh(this.grid, workers.filter((w) => !hasLeft(w)).map((w) => this.card(w, byWorker.get(w.id) || [])));
      this.drawLeft(workers.filter(hasLeft));
      this.note.hidden = workers.some((w) => !hasLeft(w));
    }
    // Workers that left long ago, in one line that opens.
    drawLeft(workers) {
      this.left.hidden = workers.length === 0;
      this.leftTitle.textContent = workers.length === 1 ? t('leftOne') : t('leftN', brim.count(workers.length));
      brim.refresh(this.leftList, workers.sort((a, b) => b.last_seen - a.last_seen).map((w) =>
        h('li', { 'data-worker': w.id }, h('b', {}, w.id), h('span.dim', {}, [w.host, w.version && 'brim ' + w.version, t('seen', brim.ago(w.last_seen))].filter(Boolean).join(' \u00b7 ')))));
    }
    isSilent(w) { return brim.now() - w.last_seen > SILENT_MS; }
    card(w, rows) {
      const silent = this.isSilent(w), status = silent ? null : w.status, gpus = (status && status.gpus) || [];
      const running = Math.max(rows.length, (status && status.running) || 0);
      return h('section.panel.worker', { class: silent ? 'silent' : '', 'data-worker': w.id },
        h('div.tools', {}, h('h2', {}, w.id), w.drain ? h('span.tagged', {}, t('draining')) : null, silent ? h('span.tagged', {}, t('silent')) : null,
          !silent && (w.lacks || []).length ? h('span.tagged', {}, t('lacks', w.lacks.map((id) => model.gridName(id)).join(', '))) : null, h('span.grow'),
          !silent && w.history.length > 1 ? sparkline(w.history) : null,
          model.may('admin') && !silent ? h('button', { onclick: () => this.drain(w) }, t(w.drain ? 'undrain' : 'drain')) : null),
        h('p.dim', {}, [w.host, w.version && 'brim ' + w.version, t('seen', brim.ago(w.last_seen)), running ? t('runningN', running) : t('idle')].filter(Boolean).join(' \u00b7 ')),
        gpus.map((g) => this.gpu(g)),
        status && gpus.length === 0 ? h('p.dim', {}, t('noGpu')) : null,
        status ? h('div.gpu', {}, meter(t('cpu'), status.cpu_percent / 100, brim.isNumber(status.cpu_percent) ? brim.whole(status.cpu_percent) + ' %' : brim.dash),
          meter(t('memory'), status.memory_used / status.memory_total, brim.isNumber(status.memory_total) ? brim.bytes(status.memory_used) + ' / ' + brim.bytes(status.memory_total) : brim.dash, true)) : null,
        rows.length ? h('ul.running', {}, rows.slice(0, 12).map((row) => h('li', {}, brim.bar(brim.share(row)), h('a', { href: '#/exp/' + row.id }, brim.labelOf(row))))) : null);
    }
    gpu(g) {
      const watts = brim.isNumber(g.power_w) ? brim.whole(g.power_w) + (brim.isNumber(g.power_limit_w) ? ' / ' + brim.whole(g.power_limit_w) : '') + ' W' : brim.dash;
      return h('div.gpu', {}, h('h3', {}, g.index + ' \u00b7 ' + (g.name || ''), brim.isNumber(g.temp_c) ? h('span.dim', {}, ' ' + brim.whole(g.temp_c) + ' \u00b0C') : null),
        meter(t('util'), g.util / 100, brim.isNumber(g.util) ? brim.whole(g.util) + ' %' : brim.dash),
        meter(t('memory'), g.memory_used / g.memory_total, brim.bytes(g.memory_used) + ' / ' + brim.bytes(g.memory_total), true),
        meter(t('power'), g.power_w / g.power_limit_w, watts));
    }
    async drain(w) {
      try { await brim.post('/v1/workers/' + encodeURIComponent(w.id) + '/drain', { drain: !w.drain }); await model.readWorkers(); } catch (e) { brim.refused(e); }
    }
    key() { return false; }
  }

  //-------------------------------- submitting --------------------------------

  const example = 'name: first-sweep\nmodel: mlp(depth=2)\nlr: [0.1, 0.01]\nbatch_size: [64, 128]\nseeds: 3\n';
  let draft = { name: '', priority: '0', yaml: '' };
  class SubmitView {
    constructor() {
      const keep = () => { draft = { name: this.name.value, priority: this.priority.value, yaml: this.yaml.value }; this.ready.hidden = true; };
      this.name = h('input', { value: draft.name, placeholder: t('optional'), oninput: keep, id: 'grid-name' });
      this.priority = h('input', { type: 'number', step: 1, value: draft.priority, oninput: keep, id: 'grid-priority' });
      this.yaml = h('textarea', { rows: innerWidth < 760 ? 14 : 24, spellcheck: false, autocapitalize: 'off', value: draft.yaml, oninput: keep, id: 'grid-yaml', 'aria-label': t('yaml') });
      this.out = h('div.points', { 'aria-live': 'polite' });
      this.introduce();
      this.checking = h('button.main', { onclick: () => this.check() }, t('check'));
      this.ready = h('button.main', { hidden: true, id: 'grid-submit', onclick: () => this.submit() });
      this.element = h('div.view.submit', {}, model.may('submit') ? h('div.columns', {},
        h('section.panel', {}, h('div.fields', {}, h('label.stack.grow', {}, t('name'), this.name), h('label.stack', {}, t('priority'), this.priority)),
          h('label.stack', {}, t('yaml'), this.yaml), h('div.buttons', {}, this.checking, this.ready, h('span.dim', {}, t('checkHint')))),
        h('section.panel.out', {}, this.out)) : h('p.none', {}, t('noRight')));
      this.yaml.addEventListener('keydown', (e) => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); if (this.ready.hidden) this.check(); else this.submit(); }
      });
    }
    destroy() {}
    // Before the first check: explains grids and offers an example.
    introduce() {
      fill(this.out, h('h2', {}, t('exampleTitle')), h('p', {}, t('exampleText')), h('pre.example', {}, example), h('div.buttons', {}, h('button', { id: 'grid-example', onclick: () => this.insert() }, t('exampleInsert'))),
        h('p.dim', {}, t('exampleNext')));
    }
    async insert() {
      if (this.yaml.value.trim() && !await brim.ask(t('askReplace'), t('replace'))) return;
      this.yaml.value = example;
      this.yaml.dispatchEvent(new Event('input'));
      this.yaml.focus();
    }
    body(dry) {
      const out = { yaml: this.yaml.value, dry, priority: Math.round(Number(this.priority.value) || 0) };
      if (this.name.value) out.name = this.name.value;
      return out;
    }
    refuse(e) {
      this.ready.hidden = true;
      if (e.status === 401) { brim.refused(e); return; }
      const { line, column } = e.body || {};
      const said = (m) => h('p.bad', {}, m.line ? h('b', {}, t('lineColumn', m.line, m.column || 1) + ': ') : null, (m.message || '').replace(/^grid:\d+:\d+: /, ''));
      const others = ((e.body || {}).mistakes || []).filter((m) => m.message !== e.message);
      fill(this.out, said({ line, column, message: e.message }), others.map(said));
      if (!line) return;
      const lines = this.yaml.value.split('\n'), start = lines.slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0);
      this.yaml.focus();
      this.yaml.setSelectionRange(start, start + (lines[line - 1] || '').length);
    }
    async check() {
      this.checking.disabled = true;
      try {
        const r = await brim.post('/v1/grids', this.body(true));
        this.ready.hidden = !r.added;
        this.ready.textContent = t('submitN', brim.count(r.added));
        fill(this.out, h('h2', {}, t('wouldAdd', brim.count(r.points), brim.count(r.added))),
          (r.warnings || []).length ? h('ul.warnings', {}, r.warnings.map((w) => h('li', {}, typeof w === 'string' ? w : w.message || JSON.stringify(w)))) : null,
          (r.first || []).map((p, i) => h('details', {}, h('summary', {}, h('small.dim', {}, String(i + 1)), ' ', brim.labelOf({ id: '', label: p.name })), h('pre', {}, p.config || ''))),
          r.points > (r.first || []).length ? h('p.dim', {}, t('more', brim.count(r.points - (r.first || []).length))) : null);
      } catch (e) { this.refuse(e); } finally { this.checking.disabled = false; }
    }
    async submit() {
      this.ready.disabled = true;
      try {
        const r = await brim.post('/v1/grids', this.body(false));
        brim.note(t('added', brim.count(r.added)));
        draft = { name: '', priority: '0', yaml: '' };
        await Promise.all([model.load(), model.readGrids()]);
        brim.go('/exps', r.grid ? { grid: r.grid } : {});
      } catch (e) { this.refuse(e); } finally { this.ready.disabled = false; }
    }
    key(name) { if (name === '/') { this.yaml.focus(); return true; } return false; }
  }

  //-------------------------------- signing in --------------------------------

  class LoginView {
    constructor(done) {
      this.token = h('input', { type: 'password', autocomplete: 'current-password', id: 'token', autofocus: true, spellcheck: false });
      this.said = h('p.bad', { role: 'alert' });
      this.element = h('div.view.login', {}, h('form.panel', {
        onsubmit: async (e) => {
          e.preventDefault();
          try { await brim.post('/v1/session', { token: this.token.value.trim() }); done(); } catch (error) {
            this.said.textContent = error.status === 401 ? t('tokenWrong') : error.message;
            this.token.select();
          }
        },
      }, h('h1', {}, 'brim'), h('p', {}, t('tokenNeeded')), h('label.stack', {}, t('token'), this.token), this.said,
      h('div.buttons', {}, h('button.main', {}, t('signIn'))), h('p.dim', {}, h('code', {}, t('tokenHint')))));
    }
    destroy() {}
    key() { return false; }
  }

  //-------------------------------- keys --------------------------------

  function showKeys() {
    const rows = [['j k', 'k_move'], ['Enter', 'k_open'], ['x', 'k_select'], ['a', 'k_all'], ['c', 'k_compare'], ['/', 'k_search'], ['Esc', 'k_back'],
      ['g e \u00b7 q \u00b7 w \u00b7 s', 'k_go'], ['m', 'k_groups'], ['v', 'k_chart'], ['t', 'k_theme'], ['l', 'k_language'], ['?', 'k_help']];
    const box = brim.dialog(h('h2', {}, t('help')), h('table.keys', {}, rows.map(([k, v]) => h('tr', {}, h('th', {}, k.split(' ').map((x) => x === '\u00b7' ? ' \u00b7 ' : h('kbd', {}, x))), h('td', {}, t(v))))),
      h('div.buttons', {}, h('button.main', { autofocus: true, onclick: () => box.close() }, t('close'))));
  }

  Object.assign(brim, { QueueView, WorkersView, SubmitView, LoginView, showKeys });
})();
