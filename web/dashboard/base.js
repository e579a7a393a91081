// Elements, numbers, requests, messages. Text from the server becomes text nodes, never HTML.
'use strict';
(function () {
  const { t } = brim, { rounded, css, hasWord } = brimPage, dash = '\u2013';

  //-------------------------------- elements --------------------------------

  // h('a.link', {href, onclick}, 'text', child, ...): null, undefined and false are left out.
  function h(name, attributes, ...children) {
    const [tag, ...classes] = name.split('.'), element = document.createElement(tag || 'div');
    if (classes.length) element.className = classes.join(' ');
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
      else if (key === 'class') element.className += ' ' + value;
      else if (key in element && key !== 'list' && key !== 'for') element[key] = value;
      else element.setAttribute(key, value === true ? '' : value);
    }
    put(element, children);
    return element;
  }
  function put(element, children) {
    for (const child of children.flat(3)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : String(child));
    }
    return element;
  }
  function fill(element, ...children) { element.replaceChildren(); return put(element, children); }
  // fill, but children that would look the same stay, since the user may just click or select them. What a button does must
  // therefore depend only on what its attributes and text show.
  function refresh(element, ...children) {
    const next = [...put(document.createDocumentFragment(), children).childNodes], old = [...element.childNodes];
    next.forEach((node, i) => {
      if (i >= old.length) element.append(node);
      else if (!old[i].isEqualNode(node)) replace(old[i], node);
    });
    for (const node of old.slice(next.length)) node.remove();
    return element;
  }
  // Replaces an element. The keyboard focus moves to the element at the same place.
  function replace(old, next) {
    const path = [];
    for (let e = old.contains(document.activeElement) ? document.activeElement : old; e !== old; e = e.parentNode) path.unshift([...e.parentNode.children].indexOf(e));
    const had = old.contains(document.activeElement) && document.activeElement.tagName;
    old.replaceWith(next);
    const same = had && path.reduce((e, at) => e && e.children[at], next);
    if (same && same.tagName === had) same.focus();
  }
  // A short text that is different for different lists.
  function digest(list) {
    let sum = 0;
    for (const text of list) for (let i = 0; i < text.length; i += 3) sum = (sum * 31 + text.charCodeAt(i)) | 0;
    return list.length + '.' + sum;
  }
  const svgName = 'http://www.w3.org/2000/svg';
  function svg(tag, attributes, ...children) {
    const element = document.createElementNS(svgName, tag);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  //-------------------------------- numbers --------------------------------

  function isNumber(value) { return typeof value === 'number' && isFinite(value); }
  // A number of the server, which writes numbers that are not finite as texts.
  function realOf(value) { return typeof value === 'string' ? ({ nan: NaN, inf: Infinity, '-inf': -Infinity })[value] : value; }
  function whole(value) { return Number(rounded(value).toFixed(0)); }
  function number(value) { return value === 'nan' || value === 'inf' || value === '-inf' ? value : brimPage.number(value, 4); }
  // The values of a message as [[key, step, value], ...]
  function rowsOf(m) { return Array.isArray(m.rows) ? m.rows : Object.entries(m.rows || {}).map(([k, v]) => [k].concat(v)); }
  function count(value) { return Number(value || 0).toLocaleString('en'); }
  // key -> {label, label_ko, lower, percent, digits}: metrics that a workload declares. Others are guessed by their names.
  const names = new Map();
  function isShare(key) { return names.has(key) ? names.get(key).percent : /acc|accuracy|top1|top5|success/.test(key || ''); }
  function isLower(key) { return names.has(key) ? names.get(key).lower : /loss|err|ppl|perplex|time|mse|mae|seconds|fall/.test(key || ''); }
  function isBetter(key, a, b) { return isLower(key) ? a < b : a > b; }
  // The name of a metric, as in tables on the terminal.
  function nameOfKey(key) { const n = names.get(key); return n ? (brim.language() === 'ko' && n.label_ko) || n.label || key : key || ''; }
  // Its name in a choice of keys: equal names are followed by the key.
  function nameAmong(key, keys) { const name = nameOfKey(key); return keys.some((k) => k !== key && nameOfKey(k) === name) ? name + ' (' + key + ')' : name; }
  function metric(key, value) {
    const n = names.get(key);
    return isNumber(value) && isShare(key) ? brimPage.percent(value, n && n.digits || 2) : number(value);
  }
  function bytes(value) { return isNumber(value) ? brimPage.bytes(value) : dash; }
  function span(ms) {
    if (!isNumber(ms)) return dash;
    const s = Math.max(0, ms) / 1000;
    if (s < 60) return t('s', s < 10 ? Number(rounded(s).toFixed(1)) : Math.round(s));
    const minutes = Math.round(s / 60);
    if (minutes < 60) return t('min', minutes);
    if (minutes < 48 * 60) return t('hour', Math.floor(minutes / 60), minutes % 60);
    return t('day', Math.round(minutes / 1440));
  }
  let skew = 0;  // the server's clock minus ours
  function now() { return Date.now() + skew; }
  function ago(ms) {
    if (!ms) return dash;
    const passed = now() - ms;
    return passed < 2000 ? t('now') : t('ago', span(passed < 60000 ? Math.round(passed / 1000) * 1000 : passed));
  }
  function clock(ms) { return ms ? new Date(ms).toLocaleString(brim.language() === 'ko' ? 'ko-KR' : 'en-GB', { dateStyle: 'short', timeStyle: 'long' }) : dash; }

  //-------------------------------- requests --------------------------------

  class Refusal extends Error {
    constructor(status, body) {
      super((body && (body.message || body.error)) || 'HTTP ' + status);
      this.status = status;
      this.body = body || {};
    }
  }
  function parse(text) {
    return text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  }
  async function lines(method, path, body) {
    const options = { method, credentials: 'same-origin', headers: {} };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers['Content-Type'] = 'application/json';
    }
    const response = await fetch(path, options);
    const text = await response.text();
    let found = [];
    try { found = parse(text); } catch (e) { if (response.ok) throw e; }
    const last = found[found.length - 1];
    if (!response.ok) throw new Refusal(response.status, last);
    if (last && last.ok === false) throw new Refusal(500, last);
    return found;
  }
  // Joins the lines of an answer into one object; lists are concatenated.
  function join(found) {
    const out = {};
    for (const line of found) {
      for (const [key, value] of Object.entries(line)) {
        if (Array.isArray(value) && Array.isArray(out[key])) for (const v of value) out[key].push(v);
        else out[key] = value;
      }
    }
    return out;
  }
  const get = async (path) => join(await lines('GET', path));
  const post = async (path, body) => join(await lines('POST', path, body || {}));
  // null for what an older server does not have.
  const optional = (promise) => promise.catch((e) => {
    if (e.status === 404 || e.status === 405 || e.status === 501) return null;
    throw e;
  });
  function query(fields) {
    const parts = Object.entries(fields).filter(([, v]) => v !== '' && v !== null && v !== undefined);
    return parts.length ? '?' + parts.map(([k, v]) => k + '=' + encodeURIComponent(v)).join('&') : '';
  }

  //-------------------------------- messages, questions --------------------------------

  const notes = h('div.notes', { role: 'status' });
  function note(text, bad) {
    const element = h('p', { class: bad ? 'bad' : '' }, text);
    notes.append(element);
    setTimeout(() => element.remove(), bad ? 9000 : 4000);
  }
  function refused(error) {
    if (error.status === 401) brim.emit('unknown');
    else note(error instanceof Refusal ? t('failedRequest', error.message) : t('awayNow'), true);
  }
  function dialog(...children) {
    const box = h('dialog', {}, ...children), title = box.querySelector('h2, p, label');
    if (title) box.setAttribute('aria-label', title.textContent.trim());
    box.addEventListener('close', () => box.remove());
    box.addEventListener('click', (e) => { if (e.target === box) box.close(); });
    document.body.append(box);
    box.showModal();
    return box;
  }
  function ask(question, yes) {
    return new Promise((resolve) => {
      let answer = false;
      const box = dialog(h('p', {}, question), h('div.buttons', {},
        h('button', { onclick: () => box.close() }, t('cancelDialog')),
        h('button.main', { autofocus: true, onclick: () => { answer = true; box.close(); } }, yes)));
      box.addEventListener('close', () => resolve(answer));
    });
  }

  //-------------------------------- news --------------------------------

  const listeners = {};
  function on(name, what) { (listeners[name] = listeners[name] || new Set()).add(what); return () => listeners[name].delete(what); }
  function emit(name, value) { for (const what of [...(listeners[name] || [])]) what(value); }
  // Calls `what` at once, then at most every `ms`.
  function throttle(ms, what) {
    let last = -Infinity, waiting = 0;
    return () => {
      if (waiting) return;
      const wait = Math.max(0, last + ms - performance.now());
      waiting = setTimeout(() => { waiting = 0; last = performance.now(); what(); }, wait);
    };
  }

  Object.assign(brim, {
    h, svg, put, fill, refresh, digest, dash, isNumber, realOf, rowsOf, rounded, css, hasWord, whole, number, count, names, isShare, isLower, isBetter, nameOfKey, nameAmong, metric, bytes, span, now, ago, clock,
    Refusal, lines, join, get, post, optional, query, notes, note, refused, dialog, ask, on, emit, throttle,
    setClock(ms) { skew = ms - Date.now(); },
  });
})();
