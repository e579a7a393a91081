// The page of a store: filters, tables with all rows, colours, details of one experiment. lab_plot.js draws. Texts come from
// the page, in its language. page.html#exp=0123456789ab opens an experiment.
'use strict';
(function () {
  var doc = document, format = brimPlot.format, rounded = brimPage.rounded, css = brimPage.css;
  var byId = brimPage.byId, make = brimPage.make, hideTip = brimPage.hideTip;
  function add(parent, tag, text, kind) { return parent.appendChild(make(tag, text, kind)); }
  function fill(template, a, b) { return template.replace('{0}', a).replace('{1}', b); }
  doc.documentElement.classList.add('scripted');
  var data = JSON.parse(byId('data').textContent), text = data.text;
  if (data.count === 0) return;
  var everyone = Array.from({ length: data.count }, function (v, i) { return i; });
  var results = data[data.result], HIGHER = 1, LOWER = 2;

  function duration(s) {
    if (s === null || !isFinite(s)) return '\u2013';
    if (s < 60) return Number(rounded(s).toPrecision(3)) + ' s';
    var min = Math.round(s / 60);
    return min < 60 ? min + ' min' : Math.floor(min / 60) + ' h ' + String(min % 60).padStart(2, '0') + ' min';
  }
  // A value of a metric, which may be a percentage: {percent: decimals, -1 = a number}.
  function valueText(metric, value) {
    if (metric.percent < 0 || value === null || !isFinite(value)) return format(value);
    return brimPage.percent(value, metric.percent);
  }
  function tickOf(metric) {
    return metric.percent < 0 ? format : function (v) { return Number(rounded(v * 100).toPrecision(6)) + ' %'; };
  }
  function resultText(value) { return valueText(data, value); }
  // The label of a metric, with its key if another metric has the same label (training and evaluation).
  function nameOf(metric) {
    var same = data.metrics.filter(function (m) { return m.label === metric.label; });
    return same.length > 1 && metric.label !== metric.key ? metric.label + ' (' + metric.key + ')' : metric.label;
  }
  function valueOf(key, exp) { return key.of[exp] < 0 ? null : key.values[key.of[exp]]; }
  function labelOf(exp, repetitions) {
    return data.keys.filter(function (key) {
      return (repetitions || !key.over) && valueOf(key, exp) !== null;
    }).map(function (key) { return key.short + '=' + valueOf(key, exp); }).join('  ') || data.id[exp];
  }
  function failureOf(exp) { return data.states[data.state[exp]][0] === 'failed' ? data.failures[data.failure[exp]] : ''; }

  //-------------------------------- filters --------------------------------

  var filters = { text: '', states: {}, values: {}, ranges: [] };
  var words = everyone.map(function (exp) {
    return (data.id[exp] + ' ' + data.tags[exp] + ' ' + failureOf(exp) + ' ' + data.keys.map(function (key) {
      return valueOf(key, exp) === null ? '' : key.name + '=' + valueOf(key, exp);
    }).join(' ')).toLowerCase();
  });
  function isFiltered() {
    return filters.text || Object.keys(filters.states).length || Object.keys(filters.values).length ||
           filters.ranges.some(Boolean);
  }
  function passes(exp) {
    if (Object.keys(filters.states).length && !filters.states[data.state[exp]]) return false;
    if (filters.text && !filters.text.split(/\s+/).every(function (word) { return brimPage.hasWord(words[exp], word); })) {
      return false;
    }
    return Object.keys(filters.values).every(function (k) { return data.keys[k].of[exp] === filters.values[k]; });
  }
  function inRanges(exp) {
    return filters.ranges.every(function (range, k) {
      var at = range ? dims[k].at[exp] : 0;
      return !range || (at >= range[0] - 0.015 && at <= range[1] + 0.015);
    });
  }

  //-------------------------------- settings as axes --------------------------------

  function numbersOf(key) {
    return everyone.map(function (exp) { return key.of[exp] < 0 ? null : Number(key.values[key.of[exp]]); });
  }
  // The place of each experiment on an axis of numbers: 0..1, -1 = none.
  function spread(numbers, write) {
    var known = numbers.filter(function (v) { return v !== null && isFinite(v); });
    var low = known.reduce(function (a, b) { return Math.min(a, b); }, Infinity);
    var high = known.reduce(function (a, b) { return Math.max(a, b); }, -Infinity);
    if (!known.length) return { at: numbers.map(function () { return -1; }), ticks: [] };
    var scale = brimPlot.scale(low, high, low > 0 && high / low >= 20);
    return {
      scale: scale,
      at: numbers.map(function (v) { return v === null || !isFinite(v) ? -1 : scale.at(v); }),
      ticks: scale.ticks.map(function (v) { return [scale.at(v), (write || format)(v)]; })
    };
  }
  function dimOf(key) {
    var n = key.values.length, numbers = key.number && n > 1 ? spread(numbersOf(key)) : null, out;
    // Few values are their own ticks, many get a scale.
    function rank(i) { return n > 1 ? i / (n - 1) : 0.5; }
    if (numbers) {
      out = numbers;
      if (n <= 8) {
        out.ticks = key.values.map(function (v) { return [numbers.scale.at(Number(v)), v]; });
        if (out.ticks.some(function (t, i) { return i && t[0] - out.ticks[i - 1][0] < 0.05; })) out = null;
      }
    }
    if (!out) {
      var each = Math.ceil(n / 12);
      out = {
        at: key.of.map(function (i) { return i < 0 ? -1 : rank(i); }),
        ticks: key.values.map(function (v, i) { return [rank(i), v]; }).filter(function (t, i) { return i % each === 0; })
      };
    }
    out.name = key.short;
    return out;
  }
  var axisKeys = data.keys.filter(function (key) { return !key.over && key.values.length > 0; }).slice(0, 14);
  var resultAxis = Object.assign(spread(results, tickOf(data)), { name: data.label || text.result });
  var dims = axisKeys.map(dimOf).concat([resultAxis]);

  //-------------------------------- colours --------------------------------

  var palette = 8;
  function swatch(i) { return css('--c' + i % palette); }
  // Colours of experiments by result, by group or by a setting, with a legend.
  function colouring(by) {
    var key = by.charAt(0) === 'k' ? data.keys[Number(by.slice(1))] : null, at, low, high;
    if (by === 'group' || (key && (!key.number || key.values.length <= palette))) {
      var of = by === 'group' ? data.group : key.of;
      var names = by === 'group' ? data.groups.map(function (g) { return labelOf(g[0], false); }) : key.values;
      var colours = names.map(function (v, i) { return swatch(i); });
      return {
        of: function (exp) { return of[exp] < 0 ? css('--dim') : colours[of[exp]]; },
        names: names, colours: colours
      };
    }
    var from = key ? spread(numbersOf(key)) : resultAxis;
    at = from.at;
    low = from.scale ? from.scale.low : null;
    high = from.scale ? from.scale.high : null;
    var dim = css('--dim');
    return {
      of: function (exp) { return at[exp] < 0 ? dim : brimPlot.ramp(at[exp]); },
      low: low, high: high, name: key ? key.short : data.label,
      write: key ? format : resultText
    };
  }
  var colourBy = data.groups.length <= palette && data.groups.length > 1 ? 'group' : 'result';

  //-------------------------------- tables --------------------------------

  // columns: [{head, title, cell(row), sort(row), kind(row)}]; rows are numbers.
  function tableOf(box, columns, hooks) {
    var rows = [], order = { column: -1, down: false }, height = 28, measured = false, table, body, heads = [], first = -1;
    box.textContent = '';
    table = add(box, 'table', null, 'all');
    var line = add(add(table, 'thead'), 'tr');
    columns.forEach(function (column, k) {
      var head = add(line, 'th'), button = add(head, 'button', column.head);
      button.type = 'button';
      if (column.title) head.title = column.title;
      heads.push(head);
      button.addEventListener('click', function () {
        var down = order.column === k ? !order.down : !!column.down;
        order = { column: k, down: down };
        sort();
        render(true);
      });
    });
    body = add(table, 'tbody');
    function sort() {
      heads.forEach(function (head, k) {
        if (k === order.column) head.setAttribute('aria-sort', order.down ? 'descending' : 'ascending');
        else head.removeAttribute('aria-sort');
      });
      if (order.column < 0) return;
      var value = columns[order.column].sort, sign = order.down ? -1 : 1, keys = new Map();
      var last = columns[order.column].last || function () { return false; };
      rows.forEach(function (row) { keys.set(row, value(row)); });
      rows.sort(function (a, b) {
        if (last(a) !== last(b)) return last(a) - last(b);
        var x = keys.get(a), y = keys.get(b);
        // Unknown values stay at the end in both directions.
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        if (typeof x === 'string') return sign * x.localeCompare(y, undefined, { numeric: true }) || a - b;
        return sign * (x - y) || a - b;
      });
    }
    function put(row) {
      var tr = make('tr');
      columns.forEach(function (column) {
        add(tr, 'td', column.cell(row), column.kind ? column.kind(row) : '');
      });
      if (hooks.mark(row)) tr.classList.add('best');
      if (hooks.chosen() === row) tr.setAttribute('aria-selected', 'true');
      tr.addEventListener('click', function () { hooks.choose(row); });
      tr.addEventListener('pointerenter', function () { hooks.point(row); });
      return tr;
    }
    function render(again) {
      var room = box.clientHeight || 400, from = Math.max(0, Math.floor(box.scrollTop / height) - 12);
      var end = Math.min(rows.length, from + Math.ceil(room / height) + 24);
      if (!again && from === first) return;
      first = from;
      body.textContent = '';
      add(body, 'tr', null, 'pad').style.height = from * height + 'px';
      for (var i = from; i < end; i++) body.appendChild(put(rows[i]));
      add(body, 'tr', null, 'pad').style.height = (rows.length - end) * height + 'px';
      if (end > from) {
        // Measure over many rows, since single heights are rounded up or down.
        var tall = (body.rows[end - from].getBoundingClientRect().bottom - body.rows[1].getBoundingClientRect().top) /
                   (end - from);
        if (tall > 10 && Math.abs(tall - height) > 0.01 && !measured) {
          measured = true;
          height = tall;
          render(true);
          return;
        }
      }
      // Columns never shrink, so that scrolling does not move them.
      heads.forEach(function (head) { head.style.minWidth = Math.ceil(head.getBoundingClientRect().width) + 'px'; });
    }
    box.addEventListener('scroll', function () { render(false); });
    box.addEventListener('pointerleave', function () { hooks.point(-1); });
    box.addEventListener('keydown', function (event) {
      var step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.target !== box || !rows.length) return;
      var at = rows.indexOf(hooks.chosen());
      at = at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step));
      hooks.choose(rows[at]);
      if (at * height < box.scrollTop) box.scrollTop = at * height;
      if ((at + 3) * height > box.scrollTop + box.clientHeight) box.scrollTop = (at + 3) * height - box.clientHeight;
      event.preventDefault();
    });
    return {
      show: function (list) { rows = list.slice(); sort(); first = -1; measured = false; render(true); },
      draw: function () { render(true); },
      sortBy: function (column, down) { order = { column: column, down: down }; }
    };
  }
  function number(list) { return function (row) { return list[row]; }; }
  function numberText(list) { return function (row) { return resultText(list[row]); }; }
  function keyColumn(key, expOf) {
    return {
      head: key.short, title: key.name,
      cell: function (row) { var v = valueOf(key, expOf(row)); return v === null ? '\u2013' : v; },
      sort: function (row) {
        var v = valueOf(key, expOf(row));
        return v === null ? null : key.number ? Number(v) : v;
      }
    };
  }
  function itself(row) { return row; }
  var down = data.better === HIGHER;
  var expColumns = [{
    head: text.state,
    cell: function (row) { return data.states[data.state[row]][1]; },
    sort: function (row) { return data.states[data.state[row]][1]; },
    kind: function (row) { return 's-' + data.states[data.state[row]][0]; }
  }].concat(data.keys.map(function (key) { return keyColumn(key, itself); }), [
    { head: data.label ? data.label + ', ' + text.last : text.last, cell: numberText(data.last), sort: number(data.last), down: down },
    { head: text.best, cell: numberText(data.best), sort: number(data.best), down: down },
    { head: text.epoch,
      cell: function (row) {
        return data.epochs[row] > 0 ? Math.max(0, data.epoch[row]) + ' / ' + data.epochs[row] : '\u2013';
      },
      sort: number(data.epoch), down: true },
    { head: text.time, cell: function (row) { return duration(data.seconds[row]); }, sort: number(data.seconds), down: true },
    { head: text.attempts, cell: number(data.attempts), sort: number(data.attempts), down: true },
    { head: text.failure, cell: failureOf, sort: function (row) { return failureOf(row) || null; },
      kind: function () { return 'status'; } }
  ]);
  function isPartial(row) { return data.groups[row][2] < data.groups[row][1]; }
  var groupColumns = data.keys.filter(function (key) { return !key.over; }).map(function (key) {
    return keyColumn(key, function (row) { return data.groups[row][0]; });
  }).concat([
    { head: data.label ? data.label + ', ' + text[data.result] : text[data.result], cell: function (row) { return data.groups[row][7]; },
      // Groups that lack results come after all others.
      sort: function (row) { return data.groups[row][3]; }, last: isPartial, down: down },
    { head: text.results, cell: function (row) { return data.groups[row][2] + ' / ' + data.groups[row][1]; },
      sort: function (row) { return data.groups[row][2]; }, down: true, kind: function (row) { return isPartial(row) ? 'partial' : ''; } },
    { head: text.lowest, cell: function (row) { return resultText(data.groups[row][5]); },
      sort: function (row) { return data.groups[row][5]; }, down: true },
    { head: text.highest, cell: function (row) { return resultText(data.groups[row][6]); },
      sort: function (row) { return data.groups[row][6]; }, down: true }
  ]);
  function bestOf(list) {
    var best = -1;
    list.forEach(function (v, i) {
      if (v === null || !data.better) return;
      if (best < 0 || (data.better === LOWER ? v < list[best] : v > list[best])) best = i;
    });
    return best;
  }
  var finished = results.map(function (v, exp) { return data.states[data.state[exp]][0] === 'done' ? v : null; });
  var bestExp = bestOf(finished), bestGroup = data.bestGroup;

  //-------------------------------- one experiment --------------------------------

  var chosen = -1, shown = everyone, detail = byId('detail');
  function attemptRows(attempts, table) {
    var head = add(add(table, 'thead'), 'tr'), body = add(table, 'tbody');
    [text.attempt, text.outcome, text.host, text.devices, text.from, text.time, text.message].forEach(function (name) {
      add(head, 'th', name);
    });
    attempts.forEach(function (a) {
      var row = add(body, 'tr'), outcome = data.outcomes[a[4][0]] || a[4][0];
      [a[0], a[2] ? outcome + ': ' + data.failures[a[2]] : outcome, a[4][1], a[4][2],
       a[1] >= 0 ? a[1] : '\u2013', duration(a[3]), a[4][3]].forEach(function (cell) { add(row, 'td', cell); });
    });
  }
  function showDetail() {
    detail.textContent = '';
    detail.hidden = chosen < 0;
    if (chosen < 0) return;
    var more = data.details[chosen] || {}, state = data.states[data.state[chosen]];
    var close = add(detail, 'button', text.close, 'close'), list;
    close.type = 'button';
    close.addEventListener('click', function () { choose(-1); });
    add(detail, 'h3', labelOf(chosen, true));
    list = add(detail, 'dl', null, 'facts');
    function pair(name, value) {
      if (value === '' || value === null || value === undefined) return;
      add(list, 'dt', name);
      add(list, 'dd', value);
    }
    pair('id', data.id[chosen]);
    pair(text.state, state[1]);
    pair(data.label + ', ' + text.last, data.last[chosen] === null ? '' : resultText(data.last[chosen]));
    pair(data.label + ', ' + text.best, data.best[chosen] === null ? '' :
         resultText(data.best[chosen]) + ' ' + fill(text.atStep, format(data.bestStep[chosen])));
    pair(text.time, data.seconds[chosen] === null ? '' : duration(data.seconds[chosen]));
    pair(text.tags, data.tags[chosen]);
    data.keys.forEach(function (key) { pair(key.name, valueOf(key, chosen) === null ? text.unset : valueOf(key, chosen)); });
    pair(text.failure, failureOf(chosen));
    pair(text.message, more.reason);
    if (data.place && !/\.jsonl$/.test(data.place)) pair(text.log, 'brim sweep log ' + data.id[chosen] + ' --store ' + data.place);
    if (more.lines) {
      add(detail, 'h3', text.lines);
      add(detail, 'pre', more.lines).tabIndex = 0;
    }
    if (more.attempts && more.attempts.length) {
      add(detail, 'h3', text.attempts);
      var box = add(detail, 'div', null, 'scroll-x');
      attemptRows(more.attempts, add(box, 'table', null, 'attempts'));
    }
  }
  function choose(exp) {
    chosen = exp;
    showDetail();
    experiments.draw();
    drawAxes();
    drawCurves();
  }

  var experiments = tableOf(byId('experiments-table'), expColumns, {
    mark: function (row) { return row === bestExp; },
    chosen: function () { return chosen; },
    choose: choose,
    point: function (row) { if (axes) axes.highlight(row); }
  });
  if (data.better) experiments.sortBy(data.keys.length + (data.result === 'best' ? 2 : 1), down);
  var groupBox = byId('groups-table'), groups = !groupBox ? null : tableOf(groupBox, groupColumns, {
    mark: function (row) { return row === bestGroup; },
    chosen: function () { return -1; },
    choose: function (row) { choose(data.groups[row][0]); },
    point: function () {}
  });
  if (groups && data.better) groups.sortBy(groupColumns.length - 4, down);

  //-------------------------------- drawings --------------------------------

  function pointAt(exp, event) {
    if (exp < 0) { hideTip(); return; }
    brimPage.showTip(labelOf(exp, true) + '\n' + data.states[data.state[exp]][1] +
            (results[exp] === null ? '' : ', ' + data.label + ' ' + resultText(results[exp])), event.clientX, event.clientY);
  }
  var axesCanvas = byId('axes'), colour = colouring(colourBy), faint = [];
  var axes = !axesCanvas ? null : brimPlot.axes(axesCanvas, dims, {
    brush: function (k, range) { filters.ranges[k] = range; update(); },
    point: pointAt,
    choose: choose
  });
  // Sorts experiments so that the best lines are drawn last, above the others.
  function bestLast(list) {
    var sign = data.better === LOWER ? -1 : 1;
    function height(exp) { return results[exp] === null ? -Infinity : sign * results[exp]; }
    return list.slice().sort(function (a, b) { return height(a) - height(b) || a - b; });
  }
  function drawAxes() {
    if (axes) axes.draw({ shown: data.better ? bestLast(shown) : shown, faint: faint, colour: colour.of, chosen: chosen, marked: -1 });
  }
  var plotCanvas = byId('plot'), look = { metric: 0, log: false, mean: false, epochs: false };
  var plot = !plotCanvas ? null : brimPlot.curves(plotCanvas, {
    point: function (line, index, event) {
      if (!line) { hideTip(); return; }
      brimPage.showTip(line.name() + '\n' + (look.epochs ? text.epoch : text.step) + ' ' + format(line.steps[index]) + ': ' +
              valueText(data.metrics[look.metric], line.values[index]), event.clientX, event.clientY);
    },
    choose: function (line) { choose(line.exp >= 0 ? line.exp : data.groups[line.group][0]); }
  });
  // Interpolates a curve; null before its first and after its last point.
  function valueAt(line, step) {
    var s = line.steps, low = 0, high = s.length - 1;
    if (step < s[0] || step > s[high]) return null;
    while (high - low > 1) { var mid = low + high >> 1; if (s[mid] <= step) low = mid; else high = mid; }
    if (s[low] === step || low === high) return line.values[low];
    if (s[high] === step) return line.values[high];
    var share = (step - s[low]) / (s[high] - s[low]);
    return line.values[low] * (1 - share) + line.values[high] * share;
  }
  function meanOf(lines) {
    var steps = new Set();
    lines.forEach(function (l) { l.steps.forEach(function (s) { steps.add(s); }); });
    steps = Array.from(steps).sort(function (a, b) { return a - b; });
    if (steps.length > 256) {
      steps = Array.from({ length: 256 }, function (v, i) { return steps[Math.round(i * (steps.length - 1) / 255)]; });
    }
    var out = { steps: [], values: [], low: [], high: [] };
    steps.forEach(function (step) {
      var values = lines.map(function (l) { return valueAt(l, step); }).filter(function (v) { return v !== null; });
      // Skip steps that some curves do not reach: the mean would jump there.
      if (values.length < lines.length) return;
      var mean = values.reduce(function (a, b) { return a + b; }, 0) / values.length, sum = 0;
      values.forEach(function (v) { sum += (v - mean) * (v - mean); });
      var spread = values.length > 1 ? Math.sqrt(sum / (values.length - 1)) : 0;
      out.steps.push(step); out.values.push(mean); out.low.push(mean - spread); out.high.push(mean + spread);
    });
    return out;
  }
  // Steps as logged, or converted to epochs: the last step is the epoch that was reached.
  function alongOf(exp, steps) {
    var last = steps[steps.length - 1], epochs = data.epoch[exp];
    if (!look.epochs || !(last > 0) || !(epochs > 0)) return steps;
    return steps.map(function (s) { return s / last * epochs; });
  }
  function linesShown() {
    var metric = data.metrics[look.metric], visible = new Uint8Array(data.count);
    shown.forEach(function (exp) { visible[exp] = 1; });
    return metric.curves.filter(function (c) { return visible[c[0]]; }).map(function (c) {
      return { exp: c[0], group: data.group[c[0]], steps: alongOf(c[0], data.steps[c[1]]), values: c.slice(2),
               colour: colour.of(c[0]),
               name: function () { return labelOf(c[0], true); } };
    });
  }
  function drawCurves() {
    if (!plot || !data.metrics.length) return;
    var lines = linesShown(), bands = [];
    if (look.mean) {
      var by = new Map();
      lines.forEach(function (l) { by.set(l.group, (by.get(l.group) || []).concat([l])); });
      lines = [];
      by.forEach(function (members, group) {
        var mean = meanOf(members), first = members[0];
        if (!mean.steps.length) return;
        lines.push({ exp: -1, group: group, steps: mean.steps, values: mean.values, colour: first.colour,
                     name: function () { return labelOf(first.exp, false) + ' (' + members.length + ')'; } });
        if (members.length > 1) bands.push({ steps: mean.steps, low: mean.low, high: mean.high, colour: first.colour });
      });
    }
    plot.draw({ lines: lines, bands: bands, log: look.log, write: tickOf(data.metrics[look.metric]), chosen: look.mean ? -1 : chosen, empty: text.noCurves });
  }

  //-------------------------------- legends and choices --------------------------------

  function legend() {
    [byId('axes-legend'), byId('curve-legend')].forEach(function (box) {
      if (!box) return;
      box.textContent = '';
      var inner = box.tagName === 'UL' ? box : add(box, 'ul', null, 'legend');
      if (!colour.names) {
        var item = add(inner, 'li');
        add(item, 'span', colour.name + ' ' + colour.write(colour.low));
        var bar = add(item, 'i', null, 'ramp');
        bar.style.background = 'linear-gradient(to right,' + [0, 0.33, 0.67, 1].map(brimPlot.ramp).join(',') + ')';
        add(item, 'span', colour.write(colour.high));
        return;
      }
      colour.names.slice(0, 16).forEach(function (name, i) {
        var one = add(inner, 'li');
        add(one, 'i', null, 'dot').style.background = colour.colours[i];
        add(one, 'span', name);
      });
      if (colour.names.length > 16) add(inner, 'li', '\u2026');
    });
  }
  function option(select, value, name) {
    var o = add(select, 'option', name);
    o.value = value;
  }
  function choice(box, name, id, options, value, change) {
    var label = add(box, 'label', name + ' '), select = add(label, 'select');
    select.id = id;
    options.forEach(function (o) { option(select, o[0], o[1]); });
    select.value = value;
    select.addEventListener('change', function () { change(select.value); });
    return select;
  }
  function toggle(box, name, id, change) {
    var label = add(box, 'label'), input = add(label, 'input');
    input.type = 'checkbox';
    input.id = id;
    add(label, 'span', ' ' + name);
    input.addEventListener('change', function () { change(input.checked); });
    return input;
  }
  function buildTools() {
    var box = byId('curve-tools') || byId('axes-legend'), colours = [['result', data.label || text.result]];
    if (data.groups.length > 1) colours.push(['group', text.group]);
    data.keys.forEach(function (key, k) { if (key.values.length > 1) colours.push(['k' + k, key.short]); });
    if (!byId('curve-tools')) return;
    if (data.metrics.length) {
      choice(box, text.metric, 'metric', data.metrics.map(function (m, i) { return [i, nameOf(m)]; }), 0, function (v) {
        look.metric = Number(v);
        drawCurves();
      });
    }
    choice(box, text.colour, 'colour', colours, colourBy, function (v) {
      colour = colouring(v);
      colourBy = v;
      legend();
      drawAxes();
      drawCurves();
    });
    if (data.epoch.some(function (e) { return e > 0; })) {
      choice(box, text.along, 'along', [['steps', text.steps], ['epochs', text.epochs]], 'steps', function (v) {
        look.epochs = v === 'epochs';
        drawCurves();
      });
    }
    toggle(box, text.logarithmic, 'log', function (on) { look.log = on; drawCurves(); });
    if (data.groups.some(function (g) { return g[1] > 1; })) {
      toggle(box, text.mean, 'mean', function (on) { look.mean = on; drawCurves(); }).parentNode.title = text.band;
    }
  }
  var stateButtons = [];
  function buildFilters() {
    var search = byId('search'), counts = data.states.map(function () { return 0; }), box = byId('by-state');
    data.state.forEach(function (s) { counts[s]++; });
    search.addEventListener('input', function () { filters.text = search.value.trim().toLowerCase(); update(); });
    data.states.forEach(function (state, s) {
      if (!counts[s]) return;
      var button = add(box, 'button', state[1] + ' ' + counts[s]);
      button.type = 'button';
      button.setAttribute('aria-pressed', 'false');
      button.addEventListener('click', function () {
        if (filters.states[s]) delete filters.states[s]; else filters.states[s] = true;
        update();
      });
      stateButtons.push([s, button]);
    });
    if (stateButtons.length < 2) box.hidden = true;
    data.keys.forEach(function (key, k) {
      if (key.values.length < 2 || key.values.length > 24) return;
      var select = choice(byId('by-value'), key.short, 'value-' + k, [['', text.all]].concat(key.values.map(function (v, i) {
        return [i, v];
      })), '', function (v) {
        if (v === '') delete filters.values[k]; else filters.values[k] = Number(v);
        update();
      });
      select.classList.add('by-value');
    });
    byId('clear').addEventListener('click', function () {
      filters = { text: '', states: {}, values: {}, ranges: [] };
      search.value = '';
      Array.from(doc.querySelectorAll('select.by-value')).forEach(function (s) { s.value = ''; });
      if (axes) axes.clear();
      update();
    });
  }
  function update() {
    var passing = everyone.filter(passes), brushed = filters.ranges.some(Boolean);
    shown = brushed ? passing.filter(inRanges) : passing;
    faint = brushed ? passing.filter(function (exp) { return !inRanges(exp); }) : [];
    byId('shown').textContent = shown.length ? fill(text.shown, shown.length, data.count) : text.none;
    byId('clear').hidden = !isFiltered();
    stateButtons.forEach(function (b) { b[1].setAttribute('aria-pressed', String(!!filters.states[b[0]])); });
    experiments.show(shown);
    if (groups) {
      var some = new Set(shown.map(function (exp) { return data.group[exp]; }));
      groups.show(data.groups.map(function (g, i) { return i; }).filter(function (i) { return some.has(i); }));
    }
    drawAxes();
    drawCurves();
  }
  function byAddress() {
    var found = /^#exp=([0-9a-f]+)$/.exec(location.hash);
    var exp = found ? data.id.findIndex(function (id) { return id.startsWith(found[1].slice(0, 12)); }) : -1;
    if (exp < 0) return;
    choose(exp);
    detail.scrollIntoView({ block: 'nearest' });
  }
  function redraw() { colour = colouring(colourBy); legend(); drawAxes(); drawCurves(); experiments.draw(); }

  buildFilters();
  buildTools();
  legend();
  update();
  byAddress();
  window.addEventListener('hashchange', byAddress);
  var timer = 0;
  window.addEventListener('resize', function () { clearTimeout(timer); timer = setTimeout(redraw, 60); });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
})();
