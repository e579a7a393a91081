// The data of the page: experiments, grids and workers, kept current by the server's events. Nothing is polled: an event
// names a change, and the page reads what the event does not contain.
'use strict';
(function () {
  const { get, post, optional, query, emit, throttle } = brim;
  const CHUNK = 2000, MOST = 50000, ONE_BY_ONE = 8, WAITS = 200, CURVE_POINTS = 400, BESTS = 500;
  const stateOf = {
    queued: 'queued', requeued: 'queued', expired: 'queued', retried: 'queued', claimed: 'leased', started: 'running',
    adopted: 'running', done: 'done', failed: 'failed', cancelled: 'cancelled', paused: 'paused',
  };
  const wantOf = { 'run wanted': 'run', 'pause wanted': 'pause', 'cancel wanted': 'cancel' };
  const model = {
    me: null, exps: new Map(), grids: [], workers: new Map(), total: 0, complete: false, version: 0,
    live: false, retryAt: 0, hasMetrics: false, disk: null,
  };

  function may(role) { return model.me && (model.me.role === 'admin' || model.me.role === role); }

  //-------------------------------- experiments --------------------------------

  function take(rows) {
    for (const row of rows || []) {
      row.epoch = row.epoch === undefined ? -1 : row.epoch;
      row.step = row.step === undefined ? -1 : row.step;
      row.words = null;
      forgetBest(model.exps.get(row.id), tidy(row));
      model.exps.set(row.id, row);
      if (row.metric_key && !brim.names.has(row.metric_key)) askName(row.metric_key);
    }
    model.version++;
  }
  // Removes what the store keeps of an earlier attempt: its failure once the experiment runs again or is done, and its
  // progress if there is no checkpoint to resume from.
  function tidy(row) {
    if (['running', 'leased', 'done'].includes(row.state)) {
      row.reason = row.failure = '';
      if (row.state !== 'done') row.last_lines = '';
    }
    if (['queued', 'leased', 'paused'].includes(row.state)) {
      if (row.ckpt_step > 0) row.step = row.ckpt_step;
      else { row.step = -1; row.epoch = -1; }
    }
    return row;
  }
  let loading = null, again = false;
  async function readAll() {
    const seen = new Set();
    model.complete = false;
    const first = model.exps.size === 0;
    for (let offset = 0; offset < MOST; offset += CHUNK) {
      const size = first && offset === 0 ? 300 : CHUNK;
      const part = await get('/v1/exps' + query({ order: 'index', limit: size, offset }));
      take(part.exps);
      for (const row of part.exps || []) seen.add(row.id);
      emit('exps');
      if (!part.exps || part.exps.length < size) break;
      if (size !== CHUNK) offset = size - CHUNK;
    }
    for (const id of [...model.exps.keys()]) if (!seen.has(id)) model.exps.delete(id);
    model.total = Math.max(model.total, model.exps.size);
    model.complete = true;
    model.version++;
    emit('exps');
  }
  // Reads everything, and once more if that was requested meanwhile.
  async function load() {
    if (loading) { again = true; return loading; }
    loading = readAll();
    try { await loading; } catch (e) { brim.refused(e); } finally { loading = null; }
    if (again) { again = false; await load(); }
  }
  const readGrids = async () => {
    const reply = await get('/v1/grids');
    model.grids = (reply.grids || []).sort((a, b) => b.created - a.created);
    emit('grids');
  };
  function gridName(id) {
    const grid = model.grids.find((g) => g.id === id);
    return grid ? grid.name || id.slice(0, 8) : (id || '').slice(0, 8);
  }
  function counts() {
    const out = { queued: 0, leased: 0, running: 0, done: 0, failed: 0, cancelled: 0, paused: 0 };
    for (const row of model.exps.values()) out[row.state]++;
    return out;
  }

  //-------------------------------- best values, names of metrics --------------------------------

  const bests = new Map();  // id -> {value, step}; null = none
  const old = new Set();  // ids whose best value may have changed
  const wanted = new Map();  // id -> key
  // The best value of a row if it is known. Unknown ones are read, so that only visible rows cause requests.
  function best(row) {
    if (!row.metric_key || row.metric === undefined) return null;
    if (!bests.has(row.id) || old.has(row.id)) { wanted.set(row.id, row.metric_key); readBests(); }
    return bests.get(row.id) || null;
  }
  function forgetBest(before, row) {
    if (!before || before.state !== row.state || before.attempt !== row.attempt || before.metric !== row.metric || before.metric_key !== row.metric_key) old.add(row.id);
  }
  const readBests = throttle(200, async () => {
    const byKey = new Map();
    for (const [id, key] of wanted) byKey.set(key, (byKey.get(key) || []).concat([id]));
    wanted.clear();
    for (const [key, all] of byKey) {
      for (let i = 0; i < all.length; i += BESTS) {
        const ids = all.slice(i, i + BESTS);
        for (const id of ids) old.delete(id);  // later events make it old again
        const reply = await quietly(optional(post('/v1/bests', { exps: ids, key })));
        if (reply === undefined) { for (const id of ids) old.add(id); return; }  // the server is away
        for (const id of ids) bests.set(id, null);
        for (const b of (reply && reply.bests) || []) bests.set(b.exp, { value: brim.realOf(b.value), step: b.step });
      }
    }
    model.version++;
    emit('exps');
    emit('bests');
  });
  // New values of an experiment: its last value, and its best one if it is better.
  function onMetrics(m) {
    const row = model.exps.get(m.exp);
    // The store may choose another metric than expected (a regression has no accuracy): ask at each new name.
    if (row && (row.metric === undefined || row.metric === null)) {
      row.seen = row.seen || new Set();
      const before = row.seen.size;
      for (const [key] of brim.rowsOf(m)) row.seen.add(key);
      if (row.seen.size > before) { dirty.add(m.exp); readSoon(); }
    }
    for (const [key, step, raw] of row ? brim.rowsOf(m) : []) {
      const value = brim.realOf(raw), known = bests.get(m.exp);
      if (key !== row.metric_key) continue;
      row.metric = raw;
      if (bests.has(m.exp) && brim.isNumber(value) && (!known || brim.isBetter(key, value, known.value))) bests.set(m.exp, { value, step });
      model.version++;
      showSoon();
    }
  }
  const asked = new Set(), unnamed = new Set();
  function askName(key) {
    if (asked.has(key)) return;
    asked.add(key);
    unnamed.add(key);
    readNames();
  }
  const readNames = throttle(50, async () => {
    const list = [...unnamed];
    unnamed.clear();
    const reply = await quietly(optional(get('/v1/names' + query({ keys: list.join() }))));
    if (reply === undefined) { for (const key of list) asked.delete(key); return; }  // the server is away
    for (const n of (reply && reply.names) || []) brim.names.set(n.key, n);
    emit('names');
    emit('exps');
  });

  //-------------------------------- what changed --------------------------------

  const dirty = new Set();
  const quietly = (promise) => promise.catch((e) => { if (e.status !== 404) brim.refused(e); });
  async function readDirty() {
    const ids = [...dirty];
    dirty.clear();
    if (ids.length === 0) return;
    if (ids.length <= ONE_BY_ONE) {
      await Promise.all(ids.map((id) => quietly(get('/v1/exps/' + id).then((reply) => {
        const old = model.exps.get(id), row = reply.exp;
        if (old) { row.config = undefined; row.last_lines = undefined; row.findings = undefined; }
        take([row]);
      }))));
    } else {
      const limit = Math.min(2 * CHUNK, ids.length + 100);
      await quietly(get('/v1/exps' + query({ states: 'leased,running', limit })).then((r) => take(r.exps)));
      await quietly(get('/v1/exps' + query({ states: 'done,failed,cancelled', order: 'ended', limit })).then((r) => take(r.exps)));
    }
    emit('exps');
    for (const id of ids) emit('exp', id);
  }
  const readSoon = throttle(700, readDirty);
  const reloadSoon = throttle(1500, () => { load(); quietly(readGrids()); });
  // Reads again why the first of the queue wait, which depends on other experiments.
  const readWaits = throttle(3000, () => {
    if (model.counts().queued === 0) return;
    quietly(get('/v1/exps' + query({ states: 'queued', order: 'queue', limit: WAITS })).then((r) => {
      for (const row of r.exps || []) if (model.exps.has(row.id)) model.exps.get(row.id).waits = row.waits;
      showSoon();
    }));
  });
  const showSoon = throttle(250, () => emit('exps'));

  function onEvent(event) {
    if (!event.exp) {
      if (event.kind === 'submitted' || event.kind === 'retried' || event.kind === 'moved') reloadSoon();
      if (event.kind.startsWith('drain')) { quietly(readWorkers()); readWaits(); }
      return;
    }
    const row = model.exps.get(event.exp), state = stateOf[event.kind];
    if (row) {
      if (state) { row.state = state; tidy(row); old.add(row.id); readWaits(); }
      if (event.kind === 'claimed') row.worker = event.text;
      if (event.kind === 'requeued' || event.kind === 'retried') quietly(readWorkers());
      if (event.kind === 'claimed' && !model.workers.has(event.text)) quietly(readWorkers());
      if (event.kind === 'started') row.since = event.t;
      touch(row.worker);
      if (wantOf[event.kind]) row.want = wantOf[event.kind];
      model.version++;
    }
    dirty.add(event.exp);
    readSoon();
    showSoon();
    emit('event', event);
  }
  function onProgress(p) {
    const row = model.exps.get(p.exp);
    if (row) {
      for (const key of ['step', 'steps', 'epoch', 'epochs']) if (p[key] !== undefined) row[key] = p[key];
      touch(row.worker);
      model.version++;
      showSoon();
    }
    emit('progress', p);
  }

  //-------------------------------- workers --------------------------------

  // A message of an experiment shows that its worker is alive.
  function touch(id) {
    const worker = model.workers.get(id);
    if (worker) worker.last_seen = Math.max(worker.last_seen, brim.now());
  }
  function takeWorker(w) {
    const id = w.id || w.name;
    if (!id) return;
    const old = model.workers.get(id) || { id, history: [] };
    let status = w.status !== undefined ? w.status : w.gpus !== undefined || w.running !== undefined ? w : old.status;
    if (typeof status === 'string') try { status = JSON.parse(status); } catch (e) { status = null; }
    let cards = typeof w.gpus === 'string' ? w.gpus : old.cards;
    const row = Object.assign({}, old, w, { id, status, cards, last_seen: w.last_seen || brim.now() });
    if (w.id) { row.drain = !!w.drain; row.lacks = w.lacks; }
    const gpus = (status && status.gpus) || [];
    const use = gpus.length ? gpus.reduce((a, g) => a + (g.util || 0), 0) / gpus.length : status ? status.cpu_percent : null;
    row.history = old.history.concat(brim.isNumber(use) ? [use] : []).slice(-60);
    model.workers.set(id, row);
  }
  async function readWorkers() {
    const reply = await get('/v1/workers');
    for (const w of reply.workers || []) takeWorker(w);
    emit('workers');
  }

  //-------------------------------- the stream of news --------------------------------

  let source = null, tries = 0, lastId = null, timer = 0, heard = 0;
  function connect() {
    clearTimeout(timer);
    if (source) source.close();
    source = new EventSource('/v1/events' + (lastId === null ? '' : '?after=' + lastId));
    const listen = (kind, what) => source.addEventListener(kind, (e) => {
      heard = performance.now();
      if (e.lastEventId) lastId = e.lastEventId;
      let value;
      try { value = JSON.parse(e.data); } catch (error) { return; }
      what(value);
    });
    source.onopen = () => {
      const back = tries > 0;
      tries = 0;
      model.live = true;
      emit('live');
      if (back) { quietly(readWorkers()); emit('exps'); if (lastId === null) reloadSoon(); }
    };
    source.onerror = () => {
      source.close();
      model.live = false;
      tries++;
      const wait = Math.min(30000, 500 * 2 ** Math.min(tries, 6)) * (0.75 + Math.random() / 2);
      model.retryAt = Date.now() + wait;
      timer = setTimeout(again401, wait);
      emit('live');
    };
    listen('event', onEvent);
    listen('progress', onProgress);
    listen('worker', (w) => { if (!model.workers.has(w.name)) readWaits(); takeWorker(w); emit('workers'); });
    listen('server', (s) => { model.disk = s.disk; emit('live'); });
    listen('metrics', (m) => { model.hasMetrics = true; onMetrics(m); emit('metrics', m); });
  }
  // The event stream does not report why it failed. Ask whether the token has expired.
  async function again401() {
    try { model.disk = (await get('/v1/whoami')).disk; } catch (e) { if (e.status === 401) { emit('unknown'); return; } }
    connect();
  }
  function disconnect() { clearTimeout(timer); if (source) source.close(); source = null; model.live = false; }

  //-------------------------------- curves --------------------------------

  // exp -> [[step, mean, lo, hi], ...] for one key
  function points(buckets) {
    return (buckets || []).map((b) => [b[1], brim.realOf(b[6]), brim.realOf(b[4]), brim.realOf(b[5])]);
  }
  let overlay = true;  // the server answers /v1/curves
  async function curves(ids, key) {
    const out = new Map(ids.map((id) => [id, []]));
    if (overlay) {
      const found = await optional(brim.lines('POST', '/v1/curves', { exps: ids, key, points: CURVE_POINTS }));
      if (found) {
        for (const line of found) {
          for (const c of line.curves || (line.exp ? [line] : [])) {
            if (out.has(c.exp)) out.get(c.exp).push(...points(c.buckets));
          }
        }
        return out;
      }
      overlay = false;
    }
    await Promise.all(ids.map(async (id) => {
      const reply = await optional(get('/v1/exps/' + id + '/curve' + query({ key, points: CURVE_POINTS })));
      if (reply) out.set(id, points(reply.buckets));
    }));
    return out;
  }
  // Names of metrics of some experiments.
  const known = new Map();  // grid -> {at, reply}: a server with many values takes a while
  function keysOf(grid) {
    const kept = known.get(grid);
    if (kept && performance.now() - kept.at < 30000) return kept.reply;
    const reply = optional(get('/v1/keys' + query({ grid })));
    known.set(grid, { at: performance.now(), reply });
    reply.then((r) => { if (!r || !r.keys || r.keys.length < 2) known.delete(grid); }, () => known.delete(grid));
    return reply;
  }
  async function keys(grid, ids) {
    const reply = grid ? await keysOf(grid) : null;
    if (reply && reply.keys) return named(reply.keys.map((k) => k.key || k.name || k));
    const found = new Set();
    for (const id of ids.slice(0, 3)) {
      const rows = await optional(brim.lines('GET', '/v1/exps/' + id + '/metrics?points=1'));
      for (const line of rows || []) if (line.key) found.add(line.key);
    }
    return named([...found]);
  }
  function named(list) { for (const key of list) askName(key); return list; }

  //-------------------------------- actions --------------------------------

  async function want(ids, what) {
    const reply = await post('/v1/want', { exps: ids, want: what });
    brim.note(brim.t('changed', brim.count(reply.count)));
  }
  async function retry(ids) {
    const reply = await post('/v1/retry', { exps: ids });
    brim.note(brim.t('changed', brim.count(reply.count)));
  }
  async function retryFailed(grid) {
    const reply = await post('/v1/retry-failed', grid ? { grid } : {});
    brim.note(brim.t('changed', brim.count(reply.count)));
  }
  async function priority(ids, value) {
    for (const id of ids) await post('/v1/exps/' + id + '/priority', { priority: value });
    brim.note(brim.t('changed', brim.count(ids.length)));
  }

  Object.assign(model, {
    may, best, tidy, load, readGrids, readWorkers, gridName, counts, connect, disconnect, curves, keys, want, retry, retryFailed, priority,
  });
  brim.model = model;
})();
