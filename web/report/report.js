// The report of brim bench: sorts the table, shows values under the pointer and draws the chosen ladder and heat map. The
// page is complete without it. Numbers come from the table.
'use strict';
(function () {
  var doc = document, byId = brimPage.byId, list = brimPage.list, make = brimPage.make, rounded = brimPage.rounded;
  var showTip = brimPage.showTip, hideTip = brimPage.hideTip, all = byId('all');
  doc.documentElement.classList.add('scripted');

  //-------------------------------- the table --------------------------------

  var heads = all ? list(all, 'thead th') : [];
  var rows = all ? list(all.tBodies[0], 'tr') : [];
  function nameOf(head) { return head.dataset.key || head.dataset.knob; }
  function columnOf(name) {
    return heads.findIndex(function (head) { return nameOf(head) === name; });
  }
  function textAt(row, column) { return row.cells[column].textContent; }
  // NaN for a word or an unknown value.
  function numberAt(row, column) {
    var cell = row.cells[column], text = cell.dataset.v || cell.textContent.replace(/,/g, '');
    return text === '' ? NaN : Number(text);
  }
  function sortBy(name, down) {
    var column = columnOf(name);
    if (column === -1) return;
    brimPage.sortTable(all, rows, column, down, function (row, k) { return { n: numberAt(row, k), t: textAt(row, k) }; });
  }
  // report.html#sort=-rate sorts by samples/s, the largest first.
  function sortByAddress() {
    var found = /^#sort=(-?)(\w+)$/.exec(location.hash);
    if (found) sortBy(found[2], found[1] === '-');
  }
  heads.forEach(function (head) {
    head.firstElementChild.addEventListener('click', function () {
      var now = head.getAttribute('aria-sort');
      // Measured columns sort the largest value first, knobs and the status the smallest.
      var down = now ? now === 'ascending' : !head.dataset.knob && nameOf(head) !== 'status';
      sortBy(nameOf(head), down);
    });
  });
  sortByAddress();
  window.addEventListener('hashchange', sortByAddress);

  //-------------------------------- points of the charts --------------------------------

  list(doc, '.chart > svg').forEach(function (svg) {
    var at = null;
    // Without the title the browser does not show the text a second time.
    var points = list(svg, '.pt, .oom').map(function (point) {
      var title = point.querySelector('title'), text = title.textContent;
      point.setAttribute('aria-label', text);
      title.remove();
      return { element: point, text: text };
    });
    function leave() {
      if (at) at.classList.remove('at');
      at = null;
      hideTip();
    }
    function move(event) {
      var best = null, least = 28 * 28;
      points.forEach(function (point) {
        var box = point.element.getBoundingClientRect();
        var dx = box.left + box.width / 2 - event.clientX, dy = box.top + box.height / 2 - event.clientY;
        var hidden = svg.classList.contains('fade') && !point.element.parentNode.classList.contains('keep');
        if (!hidden && least > dx * dx + dy * dy) { least = dx * dx + dy * dy; best = point; }
      });
      leave();
      if (!best) return;
      at = best.element;
      at.classList.add('at');
      showTip(best.text, event.clientX, event.clientY);
    }
    svg.addEventListener('pointermove', move);
    svg.addEventListener('pointerdown', move);
    svg.addEventListener('pointerleave', leave);
    // Pointing at an entry of the legend fades the lines of all others.
    list(svg.parentNode, '.legend li[data-s]').forEach(function (item) {
      item.addEventListener('pointerenter', function () {
        svg.classList.add('fade');
        list(svg, '.s').forEach(function (line) {
          line.classList.toggle('keep', line.classList.contains(item.dataset.s));
        });
      });
      item.addEventListener('pointerleave', function () { svg.classList.remove('fade'); });
    });
  });

  //-------------------------------- where the time goes --------------------------------

  // As in the table (brim_ui_ms).
  function msText(ms) {
    ms = rounded(ms);
    return ms.toFixed(ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
  }
  var stack = byId('stack'), group = byId('stack-group'), scale = byId('stack-scale');
  if (stack) {
    var phases = {};
    list(stack.parentNode, '.legend li[data-p]').forEach(function (item) {
      phases['p' + item.dataset.p] = item.textContent;
    });
    stack.addEventListener('pointermove', function (event) {
      var row = event.target.closest('.sr');
      var parts = row ? list(row, 'b i') : [];
      if (!parts.length) { hideTip(); return; }
      var total = Number(row.style.getPropertyValue('--t'));
      showTip(parts.map(function (part) {
        var ms = Number(part.style.getPropertyValue('--v'));
        return phases[part.className] + ': ' + msText(ms) + ' ms, ' +
               rounded(ms / total * 100).toFixed(0) + ' %';
      }).join('\n'), event.clientX, event.clientY);
    });
    stack.addEventListener('pointerleave', hideTip);
  }
  if (group) {
    group.addEventListener('change', function () {
      list(stack, '.sg').forEach(function (part) { part.hidden = part.dataset.g !== group.value; });
    });
  }
  if (scale) {
    scale.addEventListener('click', function (event) {
      var button = event.target.closest('button');
      if (!button) return;
      list(scale, 'button').forEach(function (other) {
        other.setAttribute('aria-pressed', String(other === button));
      });
      stack.classList.toggle('shares', button.dataset.v === 'share');
    });
  }

  //-------------------------------- the ladder --------------------------------

  var chosen = byId('ladder-row');
  if (chosen) {
    chosen.addEventListener('change', function () {
      var row = byId('r' + chosen.value);
      list(byId('ladder'), '.rung').forEach(function (rung) {
        var column = columnOf(rung.dataset.key), value = numberAt(row, column);
        var most = Number(rung.dataset.max), track = rung.querySelector('b');
        rung.querySelector('.v').textContent =
            textAt(row, column) + (isNaN(value) ? '' : rung.dataset.unit);
        track.textContent = '';
        if (!(value > 0 && most > 0)) return;
        track.appendChild(make('i')).style.setProperty('--v', Math.min(value / most * 100, 100));
      });
    });
  }

  //-------------------------------- the heat map --------------------------------

  var map = byId('heat-map'), down = byId('heat-row'), across = byId('heat-column');
  var metric = byId('heat-metric');
  function valuesOf(column) {
    var seen = [];
    rows.forEach(function (row) {
      if (seen.indexOf(textAt(row, column)) === -1) seen.push(textAt(row, column));
    });
    var numbers = seen.every(function (text) { return !isNaN(Number(text)); });
    return numbers ? seen.sort(function (a, b) { return a - b; }) : seen;
  }
  function cellOf(matching, column, least) {
    var best = null;
    matching.forEach(function (row) {
      var value = numberAt(row, column);
      if (row.classList.contains('failed') || isNaN(value)) return;
      if (!best || (least ? best.n > value : value > best.n)) {
        best = { n: value, text: textAt(row, column) };
      }
    });
    if (best) {
      best.pick = matching.some(function (row) { return row.classList.contains('best'); });
      return best;
    }
    var oom = matching.some(function (row) { return /OOM/.test(textAt(row, columnOf('status'))); });
    return { n: NaN, text: oom ? 'OOM' : '\u2013' };
  }
  function drawMap() {
    var r = columnOf(down.value), c = columnOf(across.value), m = columnOf(metric.value);
    var least = metric.selectedOptions[0].dataset.least === '1';
    var high = -Infinity, low = Infinity, top = valuesOf(c);
    var cells = valuesOf(r).map(function (value) {
      return { name: value, list: top.map(function (other) {
        var cell = cellOf(rows.filter(function (row) {
          return textAt(row, r) === value && textAt(row, c) === other;
        }), m, least);
        if (!isNaN(cell.n)) { high = Math.max(high, cell.n); low = Math.min(low, cell.n); }
        return cell;
      }) };
    });
    var head = make('tr'), body = make('tbody');
    head.appendChild(make('th', down.selectedOptions[0].text + ' \\ ' + across.selectedOptions[0].text, 'corner'));
    top.forEach(function (value) { head.appendChild(make('th', value)); });
    cells.forEach(function (line) {
      var row = make('tr');
      row.appendChild(make('th', line.name));
      line.list.forEach(function (cell) {
        var td = row.appendChild(make('td', cell.text, isNaN(cell.n) ? 'none' : ''));
        if (isNaN(cell.n)) return;
        td.style.setProperty('--q', high > low ? Math.round((cell.n - low) / (high - low) * 100) : 100);
        if (cell.n === (least ? low : high)) td.className = 'top';
        if (cell.pick) td.className = 'best';
      });
      body.appendChild(row);
    });
    map.textContent = '';
    map.appendChild(make('thead')).appendChild(head);
    map.appendChild(body);
  }
  if (map) {
    var last = { row: down.value, column: across.value };
    [down, across, metric].forEach(function (choice) {
      choice.addEventListener('change', function () {
        // Rows and columns must differ: choosing the other's knob swaps the two.
        if (down.value === across.value) {
          if (choice === down) across.value = last.row;
          else down.value = last.column;
        }
        last = { row: down.value, column: across.value };
        drawMap();
      });
    });
  }
  window.addEventListener('beforeprint', function () {
    list(doc, 'details').forEach(function (part) { part.open = true; });
  });
})();
