// The page of brim profile: choosing, sorting and searching the tables, and what lies in memory at the op
// under the pointer. The page is whole without it. Texts are never put in as HTML.
'use strict';
(function () {
  var doc = document;
  function byId(id) { return doc.getElementById(id); }
  function list(root, query) { return Array.prototype.slice.call(root.querySelectorAll(query)); }
  function make(tag, text, kind) {
    var element = doc.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  }
  doc.documentElement.classList.add('scripted');

  //-------------------------------- tables --------------------------------

  function valueAt(row, column) {
    var cell = row.cells[column];
    return { n: cell.dataset.v === undefined ? NaN : Number(cell.dataset.v), t: cell.textContent };
  }
  function sortTable(table, column, down) {
    var body = table.tBodies[0], rows = list(body, 'tr'), sign = down ? -1 : 1;
    var keys = rows.map(function (row, i) { var v = valueAt(row, column); return { row: row, n: v.n, t: v.t, i: i }; });
    var words = keys.every(function (k) { return isNaN(k.n); });
    keys.sort(function (a, b) {
      if (words) return sign * a.t.localeCompare(b.t) || a.i - b.i;
      if (isNaN(a.n) || isNaN(b.n)) return isNaN(a.n) - isNaN(b.n) || a.i - b.i;  // unknown stays below
      return sign * (a.n - b.n) || a.i - b.i;
    }).forEach(function (k) { body.appendChild(k.row); });
    list(table, 'thead th').forEach(function (head, i) {
      if (i === column) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }
  list(doc, '.list table').forEach(function (table) {
    list(table, 'thead th').forEach(function (head, column) {
      if (head.dataset.key === 'time') head.setAttribute('aria-sort', 'descending');
      head.firstElementChild.addEventListener('click', function () {
        var now = head.getAttribute('aria-sort'), key = head.dataset.key;
        // Of time one wants the most first, of names and of the ceiling the least.
        var first = !/^(name|op|layer|phase|ceiling)$/.test(key);
        sortTable(table, column, now ? now === 'ascending' : first);
      });
    });
  });

  var lists = byId('lists'), search = byId('search');
  function choose(name) {
    list(doc, '.list').forEach(function (part) { part.hidden = part.dataset.list !== name; });
    list(lists, 'button').forEach(function (button) {
      button.setAttribute('aria-pressed', String(button.dataset.list === name));
    });
  }
  function chosen() { return (lists.querySelector('[aria-pressed="true"]') || lists.firstElementChild).dataset.list; }
  // profile.html#by=layers opens that table. A link can hold it.
  function byAddress() {
    var found = /^#by=(\w+)$/.exec(location.hash);
    if (found && lists.querySelector('[data-list="' + found[1] + '"]')) choose(found[1]);
  }
  if (lists && lists.firstElementChild) {
    choose(chosen());
    byAddress();
    window.addEventListener('hashchange', byAddress);
    lists.addEventListener('click', function (event) {
      var button = event.target.closest('button');
      if (button) choose(button.dataset.list);
    });
  }
  if (search) {
    search.addEventListener('input', function () {
      var words = search.value.toLowerCase().split(/\s+/);
      list(doc, '.list tbody tr').forEach(function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = !words.every(function (word) { return text.indexOf(word) !== -1; });
      });
    });
  }

  //-------------------------------- memory --------------------------------

  var chart = byId('memory-chart'), data = byId('memory-data');
  if (chart && data) {
    var memory = JSON.parse(data.textContent), points = memory.points, blocks = memory.blocks;
    var cursor = byId('memory-cursor'), last = -1, tip = byId('tip');
    function bytes(n) {
      var units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'], i = 0;
      if (n >= 1024) { n = n / 1024 * (1 + 2 * Number.EPSILON); i++; }  // as brim_format_bytes rounds
      while (n >= 1023.95 && units.length - 1 > i) { n /= 1024; i++; }
      return (i ? n.toFixed(1) : n) + ' ' + units[i];
    }
    function show(at) {
      if (at === last) return;
      last = at;
      var op = points[at], alive = blocks.filter(function (b) { return at >= b[3] && b[4] >= at; });
      alive.sort(function (a, b) { return b[2] - a[2]; });
      var x = (at + 0.5) / points.length * 1000;
      cursor.setAttribute('d', 'M' + x + ' 0V320');
      byId('memory-op').textContent = '#' + (at + 1) + '  ' + op[0] + (op[1] ? '  ' + op[1] : '') + ': ' + bytes(op[2]);
      var body = byId('memory-owners');
      body.textContent = '';
      alive.slice(0, 12).forEach(function (b) {
        var row = body.appendChild(make('tr'));
        row.appendChild(make('th', b[0]));
        row.appendChild(make('td', b[1]));
        row.appendChild(make('td', bytes(b[2])));
        var bar = row.appendChild(make('td', '', 'part')).appendChild(make('b')).appendChild(make('i'));
        bar.style.setProperty('--v', Math.min(b[2] / op[2] * 100, 100));
      });
      return op;
    }
    function move(event) {
      var box = chart.getBoundingClientRect();
      var at = Math.floor((event.clientX - box.left) / box.width * points.length);
      at = Math.max(0, Math.min(points.length - 1, at));
      show(at);
      var over = event.target.tagName === 'rect' ? blocks[event.target.dataset.b] : null;
      tip.textContent = points[at][0] + (points[at][1] ? ' ' + points[at][1] : '') + '\n' + bytes(points[at][2]) +
        (over ? '\n' + over[0] + ' (' + over[1] + '): ' + bytes(over[2]) : '');
      tip.hidden = false;
      var size = tip.getBoundingClientRect(), wide = doc.documentElement.clientWidth;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, wide - size.width - 4)) + 'px';
      tip.style.top = Math.max(4, event.clientY - size.height - 12) + 'px';
    }
    chart.addEventListener('pointermove', move);
    chart.addEventListener('pointerdown', move);
    chart.addEventListener('pointerleave', function () { tip.hidden = true; });
  }
})();
