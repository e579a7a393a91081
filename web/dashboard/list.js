// The list of experiments: filters, a table that creates only the visible rows, groups, a chart.
'use strict';
(function () {
  const { h, fill, t, model, isNumber } = brim;
  const CURVES = 8, PARAMS = 6, SELECTED_CURVES = 24, COMPARED = 12;
  const states = ['running', 'leased', 'queued', 'paused', 'failed', 'done', 'cancelled'];
  const rank = Object.fromEntries(states.map((s, i) => [s, i]));
  const part = { running: 0, leased: 0, failed: 1, done: 1, cancelled: 1, queued: 2, paused: 3 };
  const narrow = matchMedia('(max-width: 760px)'), stacked = matchMedia('(max-width: 1100px)');
  const rowHeight = () => narrow.matches ? 40 : 27;  // as in dashboard.css; fingers need more room than a mouse

  //-------------------------------- of a row --------------------------------

  function params(row) {
    if (!row.params) {
      row.params = [];
      for (const part of (row.label || '').match(/[^\s=]+=(?:[^\s(]*\([^)]*\)|\S*)/g) || []) {
        const at = part.indexOf('=');
        row.params.push([part.slice(0, at), part.slice(at + 1)]);
      }
    }
    return row.params;
  }
  function param(row, name) { const found = params(row).find((p) => p[0] === name); return found ? found[1] : ''; }
  function nameOf(row) { return row.label || row.id.slice(0, 12); }
  function labelOf(row) {
    const list = params(row);
    if (!list.length) return nameOf(row);
    return list.map(([k, v]) => h('span.param', {}, h('i', {}, k + '='), v, ' '));
  }
  function stateText(row) {
    if ((row.state === 'running' || row.state === 'leased') && row.want === 'cancel') return t('cancelling');
    if ((row.state === 'running' || row.state === 'leased') && row.want === 'pause') return t('pausing');
    return t(row.state);
  }
  function stateMark(row) { return h('span.state', { class: 's-' + row.state }, h('i'), stateText(row)); }
  function share(row) {
    if (row.state === 'done') return 1;
    if (row.steps > 0 && row.step >= 0) return Math.min(1, row.step / row.steps);
    return row.epochs > 0 && row.epoch >= 0 ? Math.min(1, row.epoch / row.epochs) : 0;
  }
  function took(row) {
    // The time of its attempts, without pauses and waits before retries.
    const running = row.since && (row.state === 'running' || row.state === 'leased') ? Math.max(0, brim.now() - row.since) : 0;
    return row.ran_ms || running ? (row.ran_ms || 0) + running : NaN;
  }
  // The class of a failure in words; '' = none.
  function failureOf(name) { return !name || name === 'none' ? '' : brim.has('f_' + name) ? t('f_' + name) : name; }
  function waitText(w) {
    if (!w) return '';
    if (!brim.has('w_' + w.code)) return w.text || w.code || '';
    if (w.code === 'behind') return t('w_behind', brim.count(w.ahead));
    if (w.code === 'backoff') return t('w_backoff', brim.span((w.until_ms || 0) - brim.now()));
    return t('w_' + w.code);
  }
  function bar(value, kind) {
    const inner = h('i');
    inner.style.width = (100 * Math.max(0, Math.min(1, value))).toFixed(1) + '%';
    return h('span.bar', { class: kind || '' }, inner);
  }
  function progressOf(row) {
    if (row.state === 'queued' || row.state === 'paused') return h('span.dim', {}, waitText(row.waits));
    if (row.state === 'failed') return h('span.bad', { title: row.reason || '' }, failureOf(row.failure) || row.reason || '');
    if (row.state === 'cancelled') return '';
    if (row.state === 'done') return h('span.dim', {}, row.epochs > 0 && row.epoch >= 0 ? (row.epoch < row.epochs ? row.epoch + ' / ' : '') + row.epochs : row.step >= 0 ? brim.count(row.step) : '');
    return h('span.progress', {}, bar(share(row)), h('small', {}, Math.floor(brim.rounded(100 * share(row))) + ' %'));
  }

  // "73.68 % @96": the best value, and the step that first had it
  function bestOf(row) {
    const best = model.best(row);
    return best ? h('span', { title: t('atStep', brim.count(best.step)) }, brim.metric(row.metric_key, best.value), h('small.dim', { 'aria-hidden': 'true' }, ' @' + brim.count(best.step)), h('span.hide', {}, ', ' + t('atStep', brim.count(best.step)))) : '';
  }

  //-------------------------------- a table of many rows --------------------------------

  // columns: [{key, title, cell(row), sort(row), kind, phone}]; options: {onopen, onselect, selected, sort, onsort}
  class Table {
    constructor(options) {
      this.options = options;
      this.rows = [];
      this.at = -1;
      this.head = h('thead');
      this.body = h('tbody', { onclick: (e) => this.click(e) });
      this.made = new Map();  // id -> its row
      this.columns = [];
      this.groupOfColumns = h('colgroup');
      this.element = h('div.scroll', { tabindex: -1, onscroll: () => this.paint() },
        h('table.rows', {}, this.groupOfColumns, this.head, this.body));
      this.watch = new ResizeObserver(() => this.paint());
      this.watch.observe(this.element);
    }
    destroy() { this.watch.disconnect(); }
    setColumns(columns) {
      const signature = columns.map((c) => c.key + c.title + c.kind).join();
      this.columns = columns;
      if (signature !== this.signature) {
        this.signature = signature;
        fill(this.groupOfColumns, columns.map((c) => h('col', { class: 'c-' + (c.kind || 'plain') })));
      }
      const sort = this.options.sort ? this.options.sort() : null;
      brim.refresh(this.head, h('tr', {}, columns.map((c) => h('th', {
        class: 'c-' + (c.kind || 'plain'), 'aria-sort': sort && sort.key === c.key ? sort.down ? 'descending' : 'ascending' : null,
      }, c.head || (c.sort && this.options.onsort ? h('button', { 'data-key': c.key, onclick: () => this.options.onsort(c.key) }, c.title) : c.title)))));
    }
    setRows(rows) {
      this.rows = rows;
      if (this.at >= rows.length) this.at = rows.length - 1;
      this.paint(true);
    }
    paint(all) {
      const ROW = rowHeight(), height = this.element.clientHeight || 600, top = this.element.scrollTop;
      const first = Math.max(0, Math.floor(top / ROW) - 8), last = Math.min(this.rows.length, Math.ceil((top + height) / ROW) + 8);
      if (!all && first === this.first && last === this.last) return;
      this.first = first;
      this.last = last;
      const parts = [], kept = this.made;
      this.made = new Map();
      if (first > 0) parts.push(this.space(first));
      for (let i = first; i < last; i++) parts.push(this.row(i, kept.get(this.rows[i].id)));
      if (last < this.rows.length) parts.push(this.space(this.rows.length - last));
      const old = this.body.childNodes;
      if (parts.length !== old.length || parts.some((node, i) => node !== old[i])) this.body.replaceChildren(...parts);
    }
    space(count) {
      const cell = h('td');
      cell.style.height = count * rowHeight() + 'px';
      return h('tr.pad', {}, cell);
    }
    // Updates a row in place; cells that look the same stay.
    row(i, kept) {
      const row = this.rows[i], selected = this.options.selected && this.options.selected(row);
      const cells = this.columns.map((c) => h('td', { class: 'c-' + (c.kind || 'plain') }, c.cell(row, i)));
      const element = kept || h('tr', { 'data-id': row.id });
      element.className = (i === this.at ? 'at ' : '') + (selected ? 'selected' : '');
      brim.refresh(element, cells);
      this.made.set(row.id, element);
      return element;
    }
    click(e) {
      const element = e.target.closest('tr');  // null for a checkbox: its own handler has redrawn the row
      if (!element || e.target.closest('a, button, input')) return;
      const i = this.rows.findIndex((row) => row.id === element.dataset.id);
      if (i < 0) return;
      this.at = i;
      if ((e.ctrlKey || e.metaKey || e.shiftKey) && this.options.onselect) this.options.onselect(this.rows[i].id, e.shiftKey);
      else this.options.onopen(this.rows[i]);
    }
    move(by) {
      this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + by));
      const ROW = rowHeight(), y = this.at * ROW, view = this.element.clientHeight - 2 * ROW;
      if (y < this.element.scrollTop) this.element.scrollTop = y;
      if (y > this.element.scrollTop + view) this.element.scrollTop = y - view;
      this.paint(true);
    }
    current() { return this.rows[this.at]; }
  }

  //-------------------------------- the view --------------------------------

  const selected = new Set();
  let remembered = { at: -1, top: 0 };

  function filterRows(f) {
    const words = (f.q || '').toLowerCase().split(/\s+/).filter(Boolean), wanted = f.state ? f.state.split(',') : null;
    const out = [];
    for (const row of model.exps.values()) {
      if (wanted && !wanted.includes(row.state)) continue;
      if (f.grid && row.grid !== f.grid) continue;
      if (f.tag && !(row.tags || '').split(/[,\s]+/).includes(f.tag)) continue;
      if (words.length) {
        if (!row.words) row.words = [row.id, row.label, row.tags, row.worker, row.failure, failureOf(row.failure), row.reason, model.gridName(row.grid)].join(' ').toLowerCase();
        if (!words.every((w) => brim.hasWord(row.words, w))) continue;
      }
      out.push(row);
    }
    return out;
  }
  function compare(a, b) {
    const x = a === undefined || a === null || a === '' || Number.isNaN(a), y = b === undefined || b === null || b === '' || Number.isNaN(b);
    if (x || y) return x - y;
    const p = Number(a), q = Number(b);
    if (!Number.isNaN(p) && !Number.isNaN(q)) return p - q;
    return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
  }
  function sortRows(rows, column, down) {
    // Running experiments, then the latest results, then the queue in its order.
    const usual = (a, b) => part[a.state] - part[b.state] ||
      (a.state === 'queued' ? (b.priority || 0) - (a.priority || 0) || a.created - b.created
        : (b.ended || b.started || b.created || 0) - (a.ended || a.started || a.created || 0)) || (a.idx || 0) - (b.idx || 0);
    if (!column || !column.sort) return rows.sort(usual);
    const keyed = rows.map((row) => [column.sort(row), row]);
    const missing = (v) => v === undefined || v === null || v === '' || Number.isNaN(v);
    keyed.sort((a, b) => missing(a[0]) || missing(b[0]) ? missing(a[0]) - missing(b[0]) : (down ? -1 : 1) * compare(a[0], b[0]) || usual(a[1], b[1]));
    return keyed.map((k) => k[1]);
  }

  // The most frequent metric.
  function commonKey(rows) {
    const counts = new Map();
    for (const row of rows) if (row.metric_key) counts.set(row.metric_key, (counts.get(row.metric_key) || 0) + 1);
    return [...counts].reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0])[0];
  }
  // Opens the comparison, which says how many experiments it leaves out.
  function compareThese(ids) {
    brim.go('/compare', { ids: ids.slice(0, COMPARED).map((id) => id.slice(0, 12)).join(','), of: ids.length > COMPARED ? ids.length : '' });
  }

  class ListView {
    constructor(route) {
      this.f = route.query;
      this.table = new Table({
        onopen: (row) => { if (row.exps) this.openGroup(row); else brim.go('/exp/' + row.id); },
        onselect: (id, range) => this.toggle(id, range), selected: (row) => selected.has(row.id),
        sort: () => this.sort(), onsort: (key) => this.setSort(key),
      });
      this.make();
      this.off = [brim.on('exps', brim.throttle(200, () => this.update())), brim.on('grids', () => this.choices())];
      this.panel = null;
      this.choices();
      this.update();
      this.table.at = remembered.at;
      requestAnimationFrame(() => { this.table.element.scrollTop = remembered.top; });
    }
    destroy() {
      this.gone = true;
      remembered = { at: this.table.at, top: this.table.element.scrollTop };
      this.off.forEach((f) => f());
      this.table.destroy();
      if (this.panel) this.panel.destroy();
    }
    make() {
      this.search = h('input', { type: 'search', placeholder: t('search'), value: this.f.q || '', 'aria-label': t('search'),
        oninput: brim.throttle(120, () => this.set({ q: this.search.value })) });
      this.grid = h('select.grid', { 'aria-label': t('grid'), onchange: () => this.set({ grid: this.grid.value }) });
      this.tag = h('select.tag', { 'aria-label': t('tag'), onchange: () => this.set({ tag: this.tag.value }) });
      this.byState = h('div.seg', { role: 'group', 'aria-label': t('state') });
      this.mode = h('button.toggle.groups', { onclick: () => this.set({ groups: this.f.groups ? '' : '1' }) }, t('groups'));
      this.charting = h('button.toggle.charts', { onclick: () => this.toggleChart() }, t('chart'));
      this.shown = h('span.dim.shown');
      this.failed = h('button', { hidden: true, onclick: () => this.retryFailed() });
      this.note = h('p.dim.none', { hidden: true });
      this.actions = h('div.actions', { hidden: true });
      this.side = h('aside.side');
      this.element = h('div.view.list', {},
        h('div.filters', {}, this.search, this.byState, this.grid, this.tag, this.mode, this.charting, this.shown, h('span.grow'), this.failed),
        h('div.split', {}, h('div.tablebox', {}, this.table.element, this.note, this.actions), this.side));
    }
    set(change) {
      Object.assign(this.f, change);
      this.table.element.scrollTop = 0;
      this.table.at = -1;
      brim.replace('/exps', this.f);
      this.update();
    }
    choices() {
      fill(this.grid, h('option', { value: '' }, t('anyGrid')), model.grids.map((g) =>
        h('option', { value: g.id }, (g.name || g.id.slice(0, 8)) + ' (' + brim.count(g.points) + ')')));
      this.grid.value = this.f.grid || '';
      this.grid.hidden = model.grids.length < 2 && !this.f.grid;
    }
    chooseTags() {
      if (this.taggedAt === model.version) return;
      this.taggedAt = model.version;
      const tags = new Set(this.f.tag ? [this.f.tag] : []);
      for (const row of model.exps.values()) for (const tag of (row.tags || '').split(/[,\s]+/)) if (tag) tags.add(tag);
      this.tag.hidden = tags.size === 0;
      if (this.tagNames === [...tags].join()) return;
      this.tagNames = [...tags].join();
      fill(this.tag, h('option', { value: '' }, t('anyTag')), [...tags].sort().map((g) => h('option', { value: g }, g)));
      this.tag.value = this.f.tag || '';
    }
    drawStates() {
      const counts = { running: 0, leased: 0, queued: 0, paused: 0, failed: 0, done: 0, cancelled: 0 };
      const rows = filterRows(Object.assign({}, this.f, { state: '' }));
      for (const row of rows) counts[row.state]++;
      const list = () => (this.f.state || '').split(',').filter(Boolean), wanted = list();
      const flip = (s) => this.set({ state: (list().includes(s) ? list().filter((w) => w !== s) : list().concat([s])).join(',') });
      brim.refresh(this.byState, states.filter((s) => counts[s] || wanted.includes(s)).map((s) => h('button', {
        class: 's-' + s, 'aria-pressed': String(wanted.includes(s)), 'data-state': s, onclick: () => flip(s),
      }, h('i'), t(s) + ' ', h('b', {}, brim.count(counts[s])))));
      this.failed.hidden = !counts.failed || !model.may('submit');
      this.failed.textContent = t('retryFailed', brim.count(counts.failed));
      // With a search or a tag, retry only what is shown: the server itself can only retry whole grids.
      this.failedIds = this.f.q || this.f.tag ? rows.filter((row) => row.state === 'failed').map((row) => row.id) : null;
      this.failedCount = counts.failed;
    }

    //------------------------------ columns and rows ------------------------------

    oneGrid() { return this.f.grid || (model.grids.length === 1 ? model.grids[0].id : ''); }
    paramColumns(rows) {
      if (narrow.matches || !this.oneGrid() || rows.length === 0) return [];
      const names = params(rows[0]).map((p) => p[0]);
      if (names.length === 0 || names.length > PARAMS) return [];
      return names.map((name) => ({ key: 'p.' + name, title: name, kind: 'param', cell: (row) => param(row, name), sort: (row) => param(row, name) }));
    }
    columnsOf(rows) {
      const every = rows.length > 0 && rows.every((row) => row.metric_key === rows[0].metric_key);
      const select = { key: 'select', title: '', kind: 'check', cell: (row) => h('input', { type: 'checkbox', checked: selected.has(row.id), 'data-on': String(selected.has(row.id)), 'aria-label': t('select'), onclick: (e) => this.toggle(row.id, e.shiftKey) }) };
      const columns = this.paramColumns(rows);
      const named = columns.length > 0;
      return [select,
        { key: 'state', title: t('state'), kind: 'state', cell: stateMark, sort: (row) => rank[row.state] },
        ...(named ? columns : [{ key: 'label', title: t('experiment'), kind: 'label', cell: labelOf, sort: (row) => row.label }]),
        { key: 'result', title: (every && rows[0].metric_key ? brim.nameOfKey(rows[0].metric_key) : t('result')) + ', ' + t('last'), kind: 'result', cell: (row) => brim.metric(row.metric_key, row.metric), sort: (row) => row.metric },
        { key: 'best', title: t('best'), kind: 'best', cell: bestOf, sort: (row) => (model.best(row) || {}).value },
        { key: 'progress', title: t('progress'), kind: 'progress', cell: progressOf, sort: share },
        { key: 'time', title: t('time'), kind: 'time', cell: (row) => brim.span(took(row)), sort: took },
        rows.some((row) => row.worker) && { key: 'worker', title: t('worker'), kind: 'worker', cell: (row) => row.state === 'queued' ? '' : row.worker || '', sort: (row) => row.worker },
        ...(this.oneGrid() ? [] : [{ key: 'grid', title: t('grid'), kind: 'grid', cell: (row) => model.gridName(row.grid), sort: (row) => model.gridName(row.grid) }]),
        { key: 'ended', title: t('ended'), kind: 'ago', cell: (row) => row.ended ? brim.ago(row.ended) : '', sort: (row) => row.ended },
      ].filter(Boolean);
    }
    sort() { const s = this.f.sort || ''; return s ? { key: s.replace(/^-/, ''), down: s.startsWith('-') } : null; }
    setSort(key) {
      const s = this.sort(), first = (key === 'result' || key === 'best') && !brim.isLower((this.rows[0] || {}).metric_key) || key === 'ended' ? '-' : '';
      const next = !s || s.key !== key ? first + key : s.down === (first === '-') ? (s.down ? key : '-' + key) : '';
      this.set({ sort: next });
    }
    update() {
      if (this.gone) return;
      this.drawStates();
      this.chooseTags();
      this.mode.setAttribute('aria-pressed', String(!!this.f.groups));
      if (this.f.groups) { this.updateGroups(); return; }
      const filtered = filterRows(this.f), columns = this.columnsOf(filtered);
      const s = this.sort(), column = s && columns.find((c) => c.key === s.key);
      const current = this.table.current();
      this.rows = sortRows(filtered, column, s && s.down);
      this.table.setColumns(columns);
      if (current) this.table.at = this.rows.indexOf(model.exps.get(current.id));
      this.table.setRows(this.rows);
      this.shown.textContent = t('shown', brim.count(this.rows.length), brim.count(model.exps.size)) + (model.complete ? '' : ' \u2026');
      this.sayNone(this.rows.length, model.exps.size);
      this.drawActions();
      this.drawChart();
    }
    // The selected experiments in the order of the table, without those that the filters hide: actions must not touch hidden rows.
    chosen() {
      const out = [];
      for (const row of this.rows || []) for (const id of row.exps ? this.members(row) : [row.id]) if (selected.has(id) && model.exps.has(id)) out.push(id);
      return out;
    }
    sayNone(count, of) {
      this.note.hidden = count > 0 || !model.complete;
      if (this.note.hidden) return;
      if (of > 0) fill(this.note, t('noneFits'), ' ', h('button', { onclick: () => { this.search.value = ''; this.tagNames = null; this.set({ q: '', state: '', grid: '', tag: '' }); this.choices(); } }, t('clear')));
      else fill(this.note, t('nothing'), h('code', {}, 'brim sweep grid.yaml --store ' + location.origin));
    }

    //------------------------------ groups ------------------------------

    // Experiments of a group that pass the filters. The group's statistics include the others too.
    members(g) { return (g.exps || []).filter((id) => this.passing.has(id)); }
    async updateGroups() {
      const grid = this.f.grid || '', rows = filterRows(this.f);
      this.passing = new Set(rows.map((row) => row.id));
      const key = this.f.key || commonKey(rows.length ? rows : filterRows({ grid }));
      if (!key && model.exps.size === 0) { this.rows = []; this.table.setRows([]); this.sayNone(0, 0); this.drawActions(); return; }
      if (this.groupsAt !== model.version || this.groupsOf !== grid + '|' + key) {
        this.groupsAt = model.version;
        this.groupsOf = grid + '|' + key;
        let reply = null;
        try { reply = await brim.optional(brim.get('/v1/groups' + brim.query({ grid, key, over: 'seed' }))); } catch (e) { brim.refused(e); return; }
        if (!this.f.groups || this.gone) return;
        if (!reply) { this.mode.hidden = true; this.set({ groups: '' }); return; }
        this.groupsReply = reply;
      }
      if (this.groupsReply) this.showGroups(grid, key, this.groupsReply);
    }
    showGroups(grid, key, reply) {
      const all = (reply.groups || []).map((g) => Object.assign({ id: 'group-' + (g.exps || [''])[0] }, g));
      const groups = all.filter((g) => this.members(g).length);
      this.table.setColumns(this.groupColumns(groups, key));
      // The server sorts groups by rank: it knows which direction is better and which groups lack results.
      const s = this.sort(), column = s && this.table.columns.find((c) => c.key === s.key && c.sort);
      if (column) groups.sort((a, b) => (s.down ? -1 : 1) * compare(column.sort(a), column.sort(b)));
      this.rows = groups;
      this.groupsKey = key;
      this.table.setRows(groups);
      const only = grid || (model.grids.length === 1 ? model.grids[0].id : '');
      this.shown.textContent = [only ? model.gridName(only) : t('anyGrid'), brim.nameOfKey(key) + ', ' + t(reply.take === 'last' ? 'last' : 'bestOf'), t('groupsN', brim.count(groups.length))].join(' \u00b7 ');
      this.note.hidden = groups.length > 0;
      if (all.length) this.sayNone(groups.length, all.length);
      else fill(this.note, t('noGroups'));
      this.drawActions();
      this.drawChart();
    }
    groupColumns(groups, key) {
      const names = [...new Set(groups.flatMap((g) => Object.keys(g.params || {})))], few = names.length <= PARAMS && !narrow.matches;
      const spot = groups.filter((g) => isNumber(g.mean)), low = Math.min(...spot.map((g) => g.mean - (g.std || 0))), high = Math.max(...spot.map((g) => g.mean + (g.std || 0)));
      const range = (g) => {
        if (!isNumber(g.mean) || !(high > low)) return '';
        const inner = h('i'), dot = h('b'), at = (v) => 100 * (v - low) / (high - low);
        inner.style.left = at(g.mean - (g.std || 0)) + '%';
        inner.style.width = Math.max(1, at(g.mean + (g.std || 0)) - at(g.mean - (g.std || 0))) + '%';
        dot.style.left = at(g.mean) + '%';
        return h('span.range', {}, inner, dot);
      };
      const all = (g) => this.members(g).length > 0 && this.members(g).every((id) => selected.has(id));
      return [
        { key: 'select', title: '', kind: 'check', cell: (g) => h('input', { type: 'checkbox', checked: all(g), 'data-on': String(all(g)), 'data-for': brim.digest(this.members(g)), 'aria-label': t('select'), onclick: () => { const on = !all(g); for (const id of this.members(g)) if (on) selected.add(id); else selected.delete(id); this.update(); } }) },
        ...(names.length && !few ? [{ key: 'label', title: t('experiment'), kind: 'label', cell: (g) => labelOf({ id: '', label: Object.entries(g.params || {}).map(([n, v]) => n.replace(/^.*\./, '') + '=' + v).join(' ') }) }] : names.length ? names.map((n) => ({ key: 'p.' + n, title: n.replace(/^.*\./, ''), kind: 'param', cell: (g) => (g.params || {})[n], sort: (g) => (g.params || {})[n] }))
          : [{ key: 'label', title: t('experiment'), kind: 'label', cell: () => t('all') }]),
        { key: 'mean', title: t('meanStd'), kind: 'mean', sort: (g) => g.mean, cell: (g) => isNumber(g.mean) ? brim.metric(key, g.mean) + (isNumber(g.std) ? ' \u00b1 ' + brim.metric(key, g.std).replace(' %', '') : '') : brim.dash },
        { key: 'range', title: '', kind: 'range', cell: range },
        { key: 'best', title: t('best'), kind: 'best', sort: (g) => g.best, cell: (g) => brim.metric(key, g.best) },
        { key: 'n', title: t('runs'), kind: 'runs', sort: (g) => g.measured, cell: (g) => h('span', { class: g.complete === false ? 'partial' : '', title: g.complete === false ? t('partial') : '' }, t('nOf', g.measured, g.n)) },
        { key: 'states', title: t('states'), kind: 'states', cell: (g) => states.filter((s) => (g.states || {})[s]).map((s) => h('span.state', { class: 's-' + s }, h('i'), g.states[s] + ' ')) },
      ];
    }
    openGroup(g) { compareThese(this.members(g)); }

    //------------------------------ chart ------------------------------

    chartOn() { const kept = brim.remembered('chart'); return kept ? kept === 'on' : !narrow.matches; }
    toggleChart() { brim.remember('chart', this.chartOn() ? 'off' : 'on'); this.drawChart(); }
    drawChart() {
      const on = this.chartOn() && model.exps.size > 0;
      this.charting.setAttribute('aria-pressed', String(on));
      this.side.hidden = !on;
      if (!on) { if (this.panel) { this.panel.destroy(); this.panel = null; fill(this.side); } return; }
      if (!this.panel) { this.panel = new brim.Panel({ height: stacked.matches ? 180 : 300, onchange: (key) => { if (this.f.groups) this.set({ key }); } }); fill(this.side, this.panel.element); }
      const every = this.chosen(), chosen = every.slice(0, SELECTED_CURVES);
      const list = chosen.length ? chosen.map((id, i) => this.curve(id, i)) : this.f.groups ? this.groupCurves() : this.firstCurves();
      const first = list.length ? model.exps.get((list[0].members || [list[0].id])[0]) : null;
      if (this.f.groups && this.f.key) this.panel.chosen = this.f.key;
      this.panel.show(list, first ? first.grid : '', first ? first.metric_key : '',
        chosen.length < every.length ? 'chartedSome' : chosen.length ? 'charted' : this.f.groups ? 'chartedGroups' : 'chartedTop', brim.count(every.length));
    }
    curve(id, i) { return { id, name: nameOf(model.exps.get(id) || { id }), colour: i }; }
    groupCurves() {
      const done = (g) => (g.exps || []).filter((id) => (model.exps.get(id) || {}).state === 'done');  // the experiments of the mean
      return (this.rows || []).filter((g) => done(g).length).slice(0, CURVES).map((g, i) => ({
        id: g.exps[0], members: done(g).slice(0, 16), mean: g.mean, key: this.groupsKey, colour: i, name: Object.entries(g.params || {}).map(([k, v]) => k + '=' + v).join(' ') || t('all'),
      }));
    }
    // The first rows of the table that have begun, in its order. Rows that stay keep their colours.
    firstCurves() {
      const begun = (this.rows || []).filter((row) => row.step > 0 || row.state === 'running' || row.state === 'done');
      const ids = begun.slice(0, CURVES).map((row) => row.id), kept = new Map((this.colours || []).filter(([id]) => ids.includes(id)));
      const free = Array.from({ length: CURVES }, (v, i) => i).filter((i) => ![...kept.values()].includes(i));
      for (const id of ids) if (!kept.has(id)) kept.set(id, free.shift());
      this.colours = [...kept];
      return ids.map((id) => this.curve(id, kept.get(id)));
    }

    //------------------------------ selecting and acting ------------------------------

    toggle(id, range) {
      const on = !selected.has(id), i = this.rows.findIndex((row) => row.id === id), from = this.rows.findIndex((row) => row.id === this.lastId);
      const ids = range && from >= 0 && !this.f.groups ? this.rows.slice(Math.min(i, from), Math.max(i, from) + 1).map((row) => row.id) : [id];
      for (const each of ids) if (on) selected.add(each); else selected.delete(each);
      this.lastId = id;
      this.table.paint(true);
      this.drawActions();
      this.drawChart();
    }
    drawActions() {
      const ids = this.chosen(), hidden = [...selected].filter((id) => model.exps.has(id)).length - ids.length;
      this.actions.hidden = ids.length + hidden === 0;
      if (this.actions.hidden) return;
      const act = brim.actionsFor(ids.map((id) => model.exps.get(id)).filter(Boolean), () => { this.clear(); });
      brim.refresh(this.actions, h('b', {}, t('selected', brim.count(ids.length))), hidden ? h('span.dim', {}, t('selectedHidden', brim.count(hidden))) : null,
        h('button.main', { disabled: ids.length < 2, onclick: () => this.compare() }, t('compare')), act,
        h('span.grow'), h('button', { onclick: () => this.clear() }, t('clear')));
    }
    clear() { selected.clear(); this.update(); }
    compare() { const ids = this.chosen(); if (ids.length > 1) compareThese(ids); }
    async retryFailed() {
      if (await brim.ask(t('askRetryFailed', brim.count(this.failedCount)), t('retry'))) (this.failedIds ? model.retry(this.failedIds) : model.retryFailed(this.f.grid)).catch(brim.refused);
    }
    key(name) {
      const row = this.table.current();
      if (name === 'j' || name === 'ArrowDown') this.table.move(1);
      else if (name === 'k' || name === 'ArrowUp') this.table.move(-1);
      else if (name === 'PageDown') this.table.move(20);
      else if (name === 'PageUp') this.table.move(-20);
      else if (name === 'G' || name === 'End') this.table.move(1e9);
      else if (name === 'Home') this.table.move(-1e9);
      else if (name === 'Enter' && row) this.table.options.onopen(row);
      else if (name === 'x' && row && !row.exps) this.toggle(row.id);
      else if (name === 'a' && !this.f.groups) { for (const r of this.rows) selected.add(r.id); this.update(); }
      else if (name === 'c') this.compare();
      else if (name === '/') { this.search.focus(); this.search.select(); }
      else if (name === 'm') this.set({ groups: this.f.groups ? '' : '1' });
      else if (name === 'v') this.toggleChart();
      else if (name === 'Escape') { if (selected.size) this.clear(); else if (this.f.q) { this.search.value = ''; this.set({ q: '' }); } }
      else return false;
      return true;
    }
  }

  Object.assign(brim, { ListView, Table, params, nameOf, labelOf, stateMark, bestOf, narrow, share, took, failureOf, waitText, bar, states });
})();
