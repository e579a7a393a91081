// The frame: shows the view that the address names; keys, language, theme, signing in, the note that the server is away.
'use strict';
(function () {
  const { h, fill, t, model } = brim;
  const root = document.documentElement;

  //-------------------------------- theme --------------------------------

  const dark = matchMedia('(prefers-color-scheme: dark)');
  function theme() { return brim.remembered('theme') || (dark.matches ? 'dark' : 'light'); }
  function applyTheme() { root.dataset.theme = theme(); brim.emit('theme'); }
  function flipTheme() { brim.remember('theme', theme() === 'dark' ? 'light' : 'dark'); applyTheme(); }
  dark.addEventListener('change', applyTheme);

  //-------------------------------- the address --------------------------------

  // Decodes a part of the address; a part that is not encoded stays as it is.
  function plain(text) { try { return decodeURIComponent(text); } catch (e) { return text; } }
  // "#/exp/1234", "#/exps?grid=...&q=..."
  function route() {
    const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
    const [name, id] = path.split('/');
    return { name: name || 'exps', id: id ? plain(id) : '', query: Object.fromEntries(new URLSearchParams(search || '')) };
  }
  function address(path, fields) {
    return '#' + path + brim.query(fields || {});
  }
  let steps = 0;
  brim.go = (path, fields) => { steps++; location.hash = address(path, fields); };
  brim.replace = (path, fields) => history.replaceState(null, '', address(path, fields));
  brim.back = () => { if (steps > 0) { steps--; history.back(); } else location.hash = '#/exps'; };

  //-------------------------------- the frame --------------------------------

  const places = [['exps', 'experiments', 'e'], ['queue', 'queue', 'q'], ['workers', 'workers', 'w'], ['submit', 'submit', 's']];
  const nav = h('nav'), tools = h('div.tools'), overall = h('div.overall'), away = h('p.away', { hidden: true, role: 'alert' }), full = h('p.away.full', { hidden: true, role: 'alert' }), main = h('main');
  const header = h('header', {}, h('a.brand', { href: '#/exps' }, 'brim'), nav, overall, h('span.grow'), tools);
  let view = null;

  function drawNav() {
    const at = route().name, counts = model.counts(), live = [...model.workers.values()].filter((w) => brim.now() - w.last_seen < 60000).length;
    const number = { queue: counts.queued, workers: live };
    brim.refresh(nav, places.filter(([name]) => name !== 'submit' || model.may('submit')).map(([name, key, letter]) => h('a', {
      href: '#/' + name, 'aria-current': at === name || (name === 'exps' && (at === 'exp' || at === 'compare')) ? 'page' : null, title: 'g ' + letter,
    }, t(key), number[name] ? h('b', {}, brim.count(number[name])) : null)));
    const total = Object.values(counts).reduce((a, b) => a + b, 0);
    brim.refresh(overall, brim.states.map((s) => {
      const part = h('i', { class: 's-' + s, title: t(s) + ' ' + brim.count(counts[s]) });
      part.style.flexGrow = String(counts[s]);
      part.hidden = counts[s] === 0;
      return part;
    }));
    overall.hidden = total === 0;
    const title = counts.running + counts.leased;
    document.title = (title ? '(' + title + ') ' : '') + 'brim';
  }
  function drawTools() {
    brim.refresh(tools, h('span.dot', { class: model.live ? 'on' : 'off', title: t(model.live ? 'live' : 'awayNow') }),
      h('button', { title: t('k_language') + ' (l)', onclick: flipLanguage }, t('language')),
      h('button', { title: t('theme') + ' (t)', 'aria-label': t('theme'), onclick: flipTheme }, '\u25d0'),
      h('button.keys', { title: t('help') + ' (?)', 'aria-label': t('help'), onclick: brim.showKeys }, '?'),
      model.me && model.me.name ? h('button', { title: model.me.name + ' \u00b7 ' + model.me.role, onclick: signOut }, t('signOut')) : null);
  }
  function drawAway() {
    const wait = Math.ceil((model.retryAt - Date.now()) / 1000);
    away.hidden = model.live || model.retryAt === 0 || !model.me;
    away.textContent = wait > 0 ? t('away', wait) : t('awayNow');
    full.hidden = !model.me || !model.disk || !model.disk.full;
    const text = full.hidden ? '' : t('diskFull', brim.bytes(model.disk.free));
    if (full.textContent !== text) full.textContent = text;  // a screen reader reads each change aloud
  }
  function flipLanguage() {
    brim.setLanguage(brim.language() === 'ko' ? 'en' : 'ko');
    draw();
  }

  const views = { exps: brim.ListView, exp: brim.ExpView, compare: brim.CompareView, queue: brim.QueueView, workers: brim.WorkersView, submit: brim.SubmitView };
  function draw() {
    if (!model.me) return;
    const r = route(), View = Object.hasOwn(views, r.name) ? views[r.name] : brim.ListView;
    if (view) view.destroy();
    view = new View(r);
    fill(main, view.element);
    main.view = view;
    drawNav();
    drawTools();
    drawAway();
  }

  //-------------------------------- keys --------------------------------

  let afterG = 0;
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
    if (e.target.closest('input:not([type=checkbox]), textarea, select')) {
      if (e.key === 'Escape' || (e.key === 'Enter' && e.target.type === 'search')) e.target.blur();
      return;
    }
    if (!model.me) return;
    const going = Date.now() - afterG < 1500 && places.find((p) => p[2] === e.key);
    afterG = 0;
    if (going) location.hash = '#/' + going[0];
    else if (e.key === 'g') afterG = Date.now();
    else if (e.key === '?') brim.showKeys();
    else if (e.key === 't') flipTheme();
    else if (e.key === 'l') flipLanguage();
    else if (!(view && view.key(e.key)) && e.key !== 'Escape') return;
    e.preventDefault();
  });

  //-------------------------------- beginning --------------------------------

  function login() {
    model.me = null;
    model.disconnect();
    if (view) view.destroy();
    fill(nav);
    fill(tools);
    overall.hidden = true;
    away.hidden = full.hidden = true;
    view = new brim.LoginView(begin);
    fill(main, view.element);
    view.token.focus();
  }
  async function signOut() {
    try { await brim.lines('DELETE', '/v1/session'); } catch (e) { /* it is gone anyway */ }
    model.exps.clear();
    model.workers.clear();
    login();
  }
  async function begin() {
    try {
      const [me, hello] = await Promise.all([brim.get('/v1/whoami'), brim.get('/v1/hello')]);
      model.me = me;
      model.disk = me.disk;
      brim.setClock(hello.now);
    } catch (e) {
      if (e.status === 401) login();
      else { away.hidden = false; away.textContent = t('awayNow'); setTimeout(begin, 2000); }
      return;
    }
    model.connect();
    const ready = [model.readGrids(), model.load(), model.readWorkers()];
    draw();
    await Promise.all(ready.map((p) => p.catch(brim.refused)));
    performance.mark('brim-ready');
  }
  brim.on('unknown', () => { if (model.me) login(); });
  brim.on('live', () => { drawTools(); drawAway(); });
  brim.on('exps', brim.throttle(400, () => { if (model.me) drawNav(); }));
  brim.on('workers', brim.throttle(1000, () => { if (model.me) drawNav(); }));
  // Updates texts such as "5 s ago" and the time to the next try, without asking the server.
  setInterval(() => { if (!model.live) drawAway(); }, 1000);
  setInterval(() => brim.emit('tick'), 5000);
  window.addEventListener('hashchange', draw);
  root.lang = brim.language();
  applyTheme();
  document.body.append(header, away, full, main, brim.notes);
  begin();
})();
