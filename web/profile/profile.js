// The page of brim profile: chooses, sorts and searches the tables, and shows what is in memory at the op under the pointer.
// The page is complete without it.
'use strict';
(function () {
  var doc = document, byId = brimPage.byId, list = brimPage.list, make = brimPage.make, bytes = brimPage.bytes;
  doc.documentElement.classList.add('scripted');

  //-------------------------------- tables --------------------------------

  function valueAt(row, column) {
    var cell = row.cells[column];
    return { n: cell.dataset.v === undefined ? NaN : Number(cell.dataset.v), t: cell.textContent };
  }
  list(doc, '.list table').forEach(function (table) {
    list(table, 'thead th').forEach(function (head, column) {
      if (head.dataset.key === 'time') head.setAttribute('aria-sort', 'descending');
      head.firstElementChild.addEventListener('click', function () {
        var now = head.getAttribute('aria-sort'), key = head.dataset.key;
        // Times and counts sort the largest value first, names and the ceiling the smallest.
        var first = !/^(name|op|layer|phase|ceiling)$/.test(key);
        brimPage.sortTable(table, list(table.tBodies[0], 'tr'), column, now ? now === 'ascending' : first, valueAt);
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
  // profile.html#by=layers opens that table.
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
